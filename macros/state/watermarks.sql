{#-
  The watermarks of all published models, as at the start of the run: {model: {source: {checkpoint_id, position,
  release_id, definition_hash, columns, view_tables}}}, from `core.model_watermarks`. Empty while parsing and in a new
  lake.
-#}
{% macro watermarks() -%}
    {%- if not execute -%}
        {{ return({}) }}
    {%- endif -%}
    {%- set cache = tidemark.invocation_cache() -%}
    {%- if 'watermarks' not in cache -%}
        {%- do cache.update({'watermarks': tidemark._read_watermarks()}) -%}
    {%- endif -%}
    {{ return(cache.watermarks) }}
{%- endmacro %}

{% macro _read_watermarks() -%}
    {%- set watermarks_by_model = {} -%}
    {%- set watermarks = tidemark.get_core_relation('model_watermarks') -%}
    {%- if tidemark.relation_exists(watermarks) -%}
        {%- do tidemark._add_missing_columns(watermarks, ['view_tables']) -%}
        {%- do tidemark._add_missing_columns(tidemark.get_core_relation('releases'), ['view_tables', 'evaluation']) -%}
        {%- for row in run_query('select model, source, checkpoint_id, position, release_id, definition_hash, columns, view_tables from ' ~ watermarks) -%}
            {%- do watermarks_by_model.setdefault(row['model'], {}).update({row['source']: {
                'checkpoint_id': row['checkpoint_id'] | int,
                'position': row['position'] | int,
                'release_id': row['release_id'] | int,
                'definition_hash': row['definition_hash'],
                'columns': fromjson(row['columns'] or '[]'),
                'view_tables': fromjson(row['view_tables'] or '{}'),
            }}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(watermarks_by_model) }}
{%- endmacro %}

{#- Adds missing columns to a table that an earlier version of Tidemark created. -#}
{% macro _add_missing_columns(relation, names) -%}
    {%- for name in names if not tidemark.is_bucket_table(relation, column=name) -%}
        {#- dbt's relation cache is as old as the run. -#}
        {%- if name not in run_query('describe ' ~ relation) | map(attribute='col_name') -%}
            {%- do run_query('alter table ' ~ relation ~ ' add column ' ~ name ~ ' string') -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{#- The newest release of the watermarks; 0 before the first. -#}
{% macro newest_release(watermarks) -%}
    {%- set newest = namespace(id=0) -%}
    {%- for sources in watermarks.values() -%}
        {%- for watermark in sources.values() -%}
            {%- set newest.id = [newest.id, watermark.release_id] | max -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(newest.id) }}
{%- endmacro %}
