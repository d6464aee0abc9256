{#- The query of a model that adds no rows in this run, or of a data test with nothing to check: it returns no rows. The
    strategy `ledger` does not execute it. `columns` maps names to types, for a table that has to be created with them.
    -#}
{% macro nothing_new(columns={'nothing': 'int'}) -%}
    {%- if not tidemark.only_renders() -%}{%- do tidemark.run().skip(model.unique_id) -%}{%- endif -%}
    select
        {%- for name, type in columns.items() %}
        cast(null as {{ type }}) as {{ name }}{{ ',' if not loop.last }}
        {%- endfor %}
    where false
{%- endmacro %}
