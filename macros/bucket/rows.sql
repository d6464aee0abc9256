{#-
  The input of a definition with `evaluation: incremental`: a staging view, of which a run reads only the changed
  rows. Without the materialization, in `dbt compile` or a unit test, it is the whole view: the materialization
  replaces the comment by a filter.
-#}
{% macro rows(staging_view) -%}
    (select * from {{ ref(staging_view) }} {{ tidemark.changed_rows_placeholder() }})
{%- endmacro %}
