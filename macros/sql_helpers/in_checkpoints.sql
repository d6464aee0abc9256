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
