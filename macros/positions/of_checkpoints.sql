{#-
  Whether a row is of one of the checkpoints after `since`, up to `newest`, as a predicate.

  It names them one by one, as numbers that change from run to run must not come into the code that Spark generates:
  it would compile that anew each time. A list this long it looks up in a set, which is not part of the code
  (spark.sql.optimizer.inSetConversionThreshold); one of up to 200 serves Iceberg to pass over files.
-#}
{% macro of_checkpoints(column, since, newest) -%}
    {%- if newest - since > 180 -%}
        ({{ column }} > {{ since }} and {{ column }} <= {{ newest }})
    {%- else -%}
        {{ column }} in ({{ (range(-11, 0) | list + range(since + 1, newest + 1) | list) | join(', ') }})
    {%- endif -%}
{%- endmacro %}

{#- A number to compare a column's with: boxed, both, as a struct's literal is not part of the generated code either. -#}
{% macro boxed(number) -%}
    struct({{ number }})
{%- endmacro %}
