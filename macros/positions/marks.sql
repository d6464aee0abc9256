{#-
  How far every model has been published, as the run found it: {model: {source: {checkpoint_id, position,
  release_id, definition_hash, columns, view_tables}}}, from `core.model_watermarks`. Empty while parsing and on a new lake.
-#}
{% macro marks() -%}
    {%- if not execute -%}
        {{ return({}) }}
    {%- endif -%}
    {%- set memory = tidemark.run_memory() -%}
    {%- if 'marks' not in memory -%}
        {%- do memory.update({'marks': tidemark._read_marks()}) -%}
    {%- endif -%}
    {{ return(memory.marks) }}
{%- endmacro %}

{% macro _read_marks() -%}
    {%- set found = {} -%}
    {%- set watermarks = tidemark.core_relation('model_watermarks') -%}
    {%- if tidemark.is_built(watermarks) -%}
        {%- do tidemark._add_columns(watermarks, ['view_tables']) -%}
        {%- do tidemark._add_columns(tidemark.core_relation('releases'), ['view_tables', 'evaluation']) -%}
        {%- for row in run_query('select model, source, checkpoint_id, position, release_id, definition_hash, columns, view_tables from ' ~ watermarks) -%}
            {%- do found.setdefault(row['model'], {}).update({row['source']: {
                'checkpoint_id': row['checkpoint_id'] | int,
                'position': row['position'] | int,
                'release_id': row['release_id'] | int,
                'definition_hash': row['definition_hash'],
                'columns': fromjson(row['columns'] or '[]'),
                'view_tables': fromjson(row['view_tables'] or '{}'),
            }}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(found) }}
{%- endmacro %}

{#- Gives a table of an earlier Tidemark, which did not record what views show or what definitions did, the columns for it. -#}
{% macro _add_columns(relation, names) -%}
    {%- for name in names if not tidemark.is_bucket_table(relation, column=name) -%}
        {#- What dbt knows is as old as the run. -#}
        {%- if name not in run_query('describe ' ~ relation) | map(attribute='col_name') -%}
            {%- do run_query('alter table ' ~ relation ~ ' add column ' ~ name ~ ' string') -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{#- The newest release that the marks know; 0 before the first. -#}
{% macro newest_release(marks) -%}
    {%- set newest = namespace(id=0) -%}
    {%- for model in marks.values() -%}
        {%- for mark in model.values() -%}
            {%- set newest.id = [newest.id, mark.release_id] | max -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(newest.id) }}
{%- endmacro %}
