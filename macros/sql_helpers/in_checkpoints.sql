{#-
  Whether a row belongs to one of the checkpoints after `since`, up to `newest`, as a predicate.

  It lists them, because numbers that change from run to run must not be part of the code that Spark generates: it
  would compile that code again each time. Spark looks up a list of this length in a set, which is not part of the
  code (spark.sql.optimizer.inSetConversionThreshold). By a list of up to 200 values Iceberg skips files.
-#}
{% macro in_checkpoints(column, since, newest) -%}
    {%- if newest - since > 180 -%}
        ({{ column }} > {{ since }} and {{ column }} <= {{ newest }})
    {%- else -%}
        {{ tidemark.in_list(column, range(since + 1, newest + 1) | list) }}
    {%- endif -%}
{%- endmacro %}

{#- Whether a column's value is one of some positive numbers; see `in_checkpoints`. -#}
{% macro in_list(column, numbers) -%}
    {{ column }} in ({{ (range(-11, 0) | list + numbers) | join(', ') }})
{%- endmacro %}

{#- Whether a row is of its source's checkpoint. `points`: {source: {checkpoint_id}}. -#}
{% macro at_checkpoint(points) -%}
    (
        false
        {%- for source, point in points.items() %}
        or (source = '{{ source }}' and {{ tidemark.in_list('checkpoint_id', [point.checkpoint_id]) }})
        {%- endfor %}
    )
{%- endmacro %}

{#- A number to compare with a column, both wrapped in a struct: a literal of a struct is not part of the generated code
    either. -#}
{% macro uncompiled_literal(number) -%}
    struct({{ number }})
{%- endmacro %}
