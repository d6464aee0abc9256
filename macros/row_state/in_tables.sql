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

{#- The rows of some tables in `row_state`. -#}
{% macro rows_in_tables(row_state, tables) -%}
    (select * from {{ row_state }} as present where {{ tidemark.in_tables(tables, 'present') }})
{%- endmacro %}
