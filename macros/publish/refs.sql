{#- The branches of tables: {table: {branch: snapshot_id}}. -#}
{% macro refs(tables) -%}
    {%- set branches = {} -%}
    {%- if tables -%}
        {%- set query -%}
            {%- for table in tables %}
            select '{{ table }}' as table_name, name, snapshot_id from {{ table }}.refs where type = 'BRANCH'
            {%- if not loop.last %} union all {% endif -%}
            {% endfor -%}
        {%- endset -%}
        {%- for row in run_query(query) -%}
            {%- do branches.setdefault(row['table_name'], {}).update({row['name']: row['snapshot_id'] | int}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(branches) }}
{%- endmacro %}

{#- A table's name with its catalog: for `core.events` Iceberg looks for a catalog `core` first, and logs a warning with
    a stack trace. -#}
{% macro qualified_name(table) -%}
    {%- set cache = tidemark.invocation_cache() -%}
    {%- if 'catalog' not in cache -%}
        {%- do cache.update({'catalog': run_query('select current_catalog()')[0][0]}) -%}
    {%- endif -%}
    {{ return(cache.catalog ~ '.' ~ table) }}
{%- endmacro %}

{#- Moves a table's main to the head of a branch; Iceberg refuses it if main has moved in the meantime. -#}
{% macro fast_forward(table, branch=none) -%}
    {%- do run_query("call system.fast_forward('" ~ tidemark.qualified_name(table) ~ "', 'main', '" ~ (branch or tidemark.branch()) ~ "')") -%}
{%- endmacro %}

{#- The tables of a manifest whose main is not an ancestor of the head of their branch: Iceberg would not fast-forward
    it. -#}
{% macro diverged_tables(manifest, refs) -%}
    {%- set diverged = [] -%}
    {%- set heads = {} -%}
    {%- for row in manifest if 'main' in refs.get(row['table'], {}) and row['branch'] in refs[row['table']] -%}
        {%- do heads.update({row['table']: refs[row['table']][row['branch']]}) -%}
    {%- endfor -%}
    {%- set parents = tidemark._newest_snapshots(heads | list) -%}
    {%- for table, head in heads.items() -%}
        {%- set ancestor = namespace(id=head) -%}
        {%- for _ in parents if ancestor.id and ancestor.id != refs[table].main -%}
            {%- set ancestor.id = parents.get(ancestor.id) -%}
        {%- endfor -%}
        {%- if ancestor.id != refs[table].main -%}{%- do diverged.append(table) -%}{%- endif -%}
    {%- endfor -%}
    {{ return(diverged) }}
{%- endmacro %}

{#- {snapshot_id: id of its parent} of the newest Iceberg snapshots of tables. Those that a run has just staged are
    among them; a table with many commits has thousands. -#}
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

{#- Drops a branch, if it exists. -#}
{% macro drop_branch(table, branch) -%}
    {%- do run_query('alter table ' ~ tidemark.qualified_name(table) ~ ' drop branch if exists ' ~ branch) -%}
{%- endmacro %}

{#- Drops the staged changes of models that are not published. -#}
{% macro drop_staged(results, passed) -%}
    {%- set kept = passed | map(attribute='unique_id') | list -%}
    {%- for result in results if tidemark.is_staged_model(result.node) and result.node.unique_id not in kept -%}
        {%- for table in tidemark.model_tables(result.node) -%}
            {%- if tidemark.table_exists(table) -%}
                {%- do tidemark.drop_branch(table, tidemark.branch()) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}
