{#- The query of a ledger model that adds nothing in this run, or of a data test with nothing to check: a select without
    rows, with a comment that the materialization recognizes. `columns` maps names to types, for a table that has to be
    created with them. -#}
{% macro empty_select(columns={'nothing': 'int'}) -%}
    select /* nothing new */
        {%- for name, type in columns.items() %}
        cast(null as {{ type }}) as {{ name }}{{ ',' if not loop.last }}
        {%- endfor %}
    where false
{%- endmacro %}
