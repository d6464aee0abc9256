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
        {{ tidemark.is_one_of(column, range(since + 1, newest + 1) | list) }}
    {%- endif -%}
{%- endmacro %}

{#- Whether a column's value is one of some positive numbers; see `of_checkpoints`. -#}
{% macro is_one_of(column, numbers) -%}
    {{ column }} in ({{ (range(-11, 0) | list + numbers) | join(', ') }})
{%- endmacro %}

{#- Whether a row, of `relation` if that is given, is of its source's checkpoint. `at`: {source: {checkpoint_id}}. -#}
{% macro of_its_checkpoint(at, relation='') -%}
    {%- set of = relation ~ '.' if relation else '' -%}
    (
        false
        {%- for source, standing in at.items() %}
        or ({{ of }}source = '{{ source }}' and {{ tidemark.is_one_of(of ~ 'checkpoint_id', [standing.checkpoint_id]) }})
        {%- endfor %}
    )
{%- endmacro %}

{#- A number to compare a column's with: boxed, both, as a struct's literal is not part of the generated code either. -#}
{% macro boxed(number) -%}
    struct({{ number }})
{%- endmacro %}
