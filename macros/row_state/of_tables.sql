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
