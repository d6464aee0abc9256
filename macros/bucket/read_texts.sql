{#-
  The SQL of a view as it stands in the lake: what a definition over it gives is decided by that, whatever the files say by now. A run
  asks for those that it makes, once. Others, which another process may make, it asks for if the models stand elsewhere than when the
  process last asked (`graph` stays): a warm run that finds nothing new asks nothing. `tidemark plan` has compiled all of them: it goes
  by what would be made.
-#}
{% macro view_text(node) -%}
    {%- set texts = graph.setdefault('tidemark view_texts', {}) -%}
    {%- set asked = tidemark.run_memory().setdefault('asked_views', []) -%}
    {%- set standing = tidemark.standing('row_state') -%}
    {%- set is_old = node.unique_id in selected_resources or texts.get(node.unique_id, {}).get('standing') != standing -%}
    {%- if node.unique_id not in asked and is_old -%}
        {%- set text = node.get('compiled_code') -%}
        {%- if not text -%}
            {%- set view = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
            {%- set created = run_query('show create table ' ~ view)[0][0] -%}
            {%- set text = modules.re.split('\nAS\\s', created, maxsplit=1) | last -%}
        {%- endif -%}
        {%- do texts.update({node.unique_id: {'text': text, 'standing': standing}}) -%}
        {%- do asked.append(node.unique_id) -%}
    {%- endif -%}
    {{ return(texts[node.unique_id].text) }}
{%- endmacro %}

{#- What tells a seed's columns and contents, as they are loaded, from others; asked for once in a run. -#}
{% macro seed_contents(node) -%}
    {%- set contents = tidemark.run_memory().setdefault('seed_contents', {}) -%}
    {%- if node.unique_id not in contents -%}
        {%- set seed = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
        {%- set found = 'not loaded' -%}
        {%- if tidemark.is_built(seed) -%}
            {%- set query = 'select cast(sum(cast(xxhash64(to_json(struct(*), ' ~ tidemark.json_options() ~ ')) as decimal(38))) as string) as contents from ' ~ seed -%}
            {%- set found = [run_query(query)[0]['contents']] -%}
            {%- for row in run_query('describe ' ~ seed) -%}
                {%- do found.append(row['col_name'] ~ ' ' ~ row['data_type']) -%}
            {%- endfor -%}
        {%- endif -%}
        {%- do contents.update({node.unique_id: found | string}) -%}
    {%- endif -%}
    {{ return(contents[node.unique_id]) }}
{%- endmacro %}
