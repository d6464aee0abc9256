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

{#- A table with its catalog: of `core.events` Iceberg looks for a catalog `core` first, and warns of it with a stack trace. -#}
{% macro whole_name(table) -%}
    {%- set memory = tidemark.run_memory() -%}
    {%- if 'catalog' not in memory -%}
        {%- do memory.update({'catalog': run_query('select current_catalog()')[0][0]}) -%}
    {%- endif -%}
    {{ return(memory.catalog ~ '.' ~ table) }}
{%- endmacro %}

{#- Moves a table's main to the head of a branch; refused by Iceberg where main has moved meanwhile. -#}
{% macro fast_forward(table, branch=none) -%}
    {%- do run_query("call system.fast_forward('" ~ tidemark.whole_name(table) ~ "', 'main', '" ~ (branch or tidemark.branch()) ~ "')") -%}
{%- endmacro %}

{#- The tables of a manifest whose main is not below the head of their branch, so that Iceberg would not fast-forward it. -#}
{% macro moved_mains(manifest, refs) -%}
    {%- set moved = [] -%}
    {%- set heads = {} -%}
    {%- for row in manifest if 'main' in refs.get(row['table'], {}) and row['branch'] in refs[row['table']] -%}
        {%- do heads.update({row['table']: refs[row['table']][row['branch']]}) -%}
    {%- endfor -%}
    {%- set parents = tidemark._newest_snapshots(heads | list) -%}
    {%- for table, head in heads.items() -%}
        {%- set at = namespace(id=head) -%}
        {%- for _ in parents if at.id and at.id != refs[table].main -%}
            {%- set at.id = parents.get(at.id) -%}
        {%- endfor -%}
        {%- if at.id != refs[table].main -%}{%- do moved.append(table) -%}{%- endif -%}
    {%- endfor -%}
    {{ return(moved) }}
{%- endmacro %}

{#- {snapshot_id: the one that it was made from} of tables: the newest of each, which a run that has just staged some is among; a
    table that is written often has thousands. -#}
{% macro _newest_snapshots(tables) -%}
    {%- set parents = {} -%}
    {%- if tables -%}
        {%- set query -%}
            {%- for table in tables %}
            (select snapshot_id, parent_id from {{ table }}.snapshots order by committed_at desc limit 100)
            {%- if not loop.last %} union all {% endif -%}
            {% endfor -%}
        {%- endset -%}
        {%- for row in run_query(query) -%}
            {%- do parents.update({row['snapshot_id'] | int: row['parent_id'] | int(0)}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(parents) }}
{%- endmacro %}

{#- Drops a branch, if it is there. -#}
{% macro drop_branch(table, branch) -%}
    {%- do run_query('alter table ' ~ tidemark.whole_name(table) ~ ' drop branch if exists ' ~ branch) -%}
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
