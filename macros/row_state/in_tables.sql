{#- Whether a row belongs to one of some tables, a list of {source, table_name}, as a predicate with literals on the
    partition columns of `row_state`: other tables are not read. -#}
{% macro in_tables(tables, relation) -%}
    (
        false
        {%- for source, its_tables in tables | groupby('source') %}
        or (
            {{ relation }}.source = {{ tidemark.literal(source) }}
            and {{ relation }}.table_name in ({% for t in its_tables %}{{ tidemark.literal(t.table_name) }}{{ ', ' if not loop.last }}{% endfor %})
        )
        {%- endfor %}
    )
{%- endmacro %}
