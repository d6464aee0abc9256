{#- What a ledger model renders when this run adds nothing to it, and a test of one: a select without rows, and a mark that its
    materialization knows. `columns` maps names to types, for a table that is to be created so. -#}
{% macro nothing_new(columns={'nothing': 'int'}) -%}
    select /* nothing new */
        {%- for name, type in columns.items() %}
        cast(null as {{ type }}) as {{ name }}{{ ',' if not loop.last }}
        {%- endfor %}
    where false
{%- endmacro %}
