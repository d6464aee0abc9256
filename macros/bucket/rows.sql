{#-
  The input of a definition with `evaluation: incremental`: a staging view, of which a run reads the changed rows only. By itself, in
  `dbt compile` or a unit test, it is the whole view; the materialization puts a filter in place of the comment.
-#}
{% macro rows(staging_view) -%}
    (select * from {{ ref(staging_view) }} {{ tidemark.changed_rows_mark() }})
{%- endmacro %}

{#- Where that filter goes. -#}
{% macro changed_rows_mark() -%}
    {{ return('/* changed rows */') }}
{%- endmacro %}
