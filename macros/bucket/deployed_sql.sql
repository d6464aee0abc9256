{#-
  The SQL of a view as deployed in the lake. A definition over it depends on this, not on the files. A run reads each
  view that it builds once. It reads other views, which another process may build, only if the models' positions have
  changed since the process last read them (`graph` is kept): a warm run without new changes reads nothing. `tidemark
  plan` has compiled all views, and uses the compiled SQL.
-#}
{% macro deployed_view_sql(node) -%}
    {%- set texts = graph.setdefault('tidemark view_texts', {}) -%}
    {%- set read_views = tidemark.invocation_cache().setdefault('read_views', []) -%}
    {%- set positions = tidemark.model_positions('row_state') -%}
    {%- set is_outdated = node.unique_id in selected_resources or texts.get(node.unique_id, {}).get('positions') != positions -%}
    {%- if node.unique_id not in read_views and is_outdated -%}
        {%- set text = node.get('compiled_code') -%}
        {%- if not text -%}
            {%- set view = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
            {%- set created = run_query('show create table ' ~ view)[0][0] -%}
            {%- set text = modules.re.split('\nAS\\s', created, maxsplit=1) | last -%}
        {%- endif -%}
        {%- do texts.update({node.unique_id: {'text': text, 'positions': positions}}) -%}
        {%- do read_views.append(node.unique_id) -%}
    {%- endif -%}
    {{ return(texts[node.unique_id].text) }}
{%- endmacro %}

{#- Identifies the columns and the contents of a seed as it is loaded; computed once per run. -#}
{% macro seed_digest(node) -%}
    {%- set contents = tidemark.invocation_cache().setdefault('seed_contents', {}) -%}
    {%- if node.unique_id not in contents -%}
        {%- set seed = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
        {%- set parts = 'not loaded' -%}
        {%- if tidemark.relation_exists(seed) -%}
            {%- set query = 'select cast(sum(cast(xxhash64(to_json(struct(*), ' ~ tidemark.json_options() ~ ')) as decimal(38))) as string) as contents from ' ~ seed -%}
            {%- set parts = [run_query(query)[0]['contents']] -%}
            {%- for row in run_query('describe ' ~ seed) -%}
                {%- do parts.append(row['col_name'] ~ ' ' ~ row['data_type']) -%}
            {%- endfor -%}
        {%- endif -%}
        {%- do contents.update({node.unique_id: parts | string}) -%}
    {%- endif -%}
    {{ return(contents[node.unique_id]) }}
{%- endmacro %}
