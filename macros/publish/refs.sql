{#- The branches of tables: {table: {branch: snapshot_id}}. -#}
{% macro refs(tables) -%}
    {%- set found = {} -%}
    {%- if tables -%}
        {%- set query -%}
            {%- for table in tables %}
            select '{{ table }}' as table_name, name, snapshot_id from {{ table }}.refs where type = 'BRANCH'
            {%- if not loop.last %} union all {% endif -%}
            {% endfor -%}
        {%- endset -%}
        {%- for row in run_query(query) -%}
            {%- do found.setdefault(row['table_name'], {}).update({row['name']: row['snapshot_id'] | int}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(found) }}
{%- endmacro %}

{#- Moves a table's main to the head of a branch; refused by Iceberg where main has moved meanwhile. -#}
{% macro fast_forward(table, branch=none) -%}
    {%- do run_query("call system.fast_forward('" ~ table ~ "', 'main', '" ~ (branch or tidemark.branch()) ~ "')") -%}
{%- endmacro %}

{#- Drops a branch, if it is there. -#}
{% macro drop_branch(table, branch) -%}
    {%- do run_query('alter table ' ~ table ~ ' drop branch if exists ' ~ branch) -%}
{%- endmacro %}

{#- Drops what the run staged of models that are not to be published. -#}
{% macro drop_staged(results, passed) -%}
    {%- set kept = passed | map(attribute='unique_id') | list -%}
    {%- for result in results if tidemark.is_staged_model(result.node) and result.node.unique_id not in kept -%}
        {%- for table in tidemark.tables_of(result.node) -%}
            {%- if tidemark.is_built_table(table) -%}
                {%- do tidemark.drop_branch(table, tidemark.branch()) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}
