{#- The rows of some tables in `row_state`, as a subquery. -#}
{% macro rows_in_tables(row_state, tables) -%}
    (select * from {{ row_state }} as present where {{ tidemark.in_tables(tables, 'present') }})
{%- endmacro %}
