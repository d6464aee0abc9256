{#- Whether a row is of one of some tables, a list of {source, table_name}, as a predicate with literals of the partitions that
    `row_state` has: those of other tables are not read. -#}
{% macro of_tables(tables, relation) -%}
    (
        false
        {%- for source, its in tables | groupby('source') %}
        or (
            {{ relation }}.source = {{ tidemark.literal(source) }}
            and {{ relation }}.table_name in ({% for t in its %}{{ tidemark.literal(t.table_name) }}{{ ', ' if not loop.last }}{% endfor %})
        )
        {%- endfor %}
    )
{%- endmacro %}

{#- The rows that `row_state` has of some tables. -#}
{% macro rows_of_tables(row_state, tables) -%}
    (select * from {{ row_state }} as present where {{ tidemark.of_tables(tables, 'present') }})
{%- endmacro %}
