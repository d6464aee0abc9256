{#-
  The columns that a definition brings, as [{name, type}] without `_row_key`; checked against its settings. One that is
  published unchanged has been checked: its columns are known, without types.
-#}
{% macro bucket_columns(sql, settings, model, plan) -%}
    {%- if plan.is_published -%}
        {%- set known = [] -%}
        {%- for name in plan.published_columns -%}
            {%- do known.append({'name': name}) -%}
        {%- endfor -%}
        {{ return(known) }}
    {%- endif -%}
    {%- set columns = [] -%}
    {%- set names = [] -%}
    {%- for row in run_query('describe query ' ~ sql) -%}
        {%- do names.append(row['col_name']) -%}
        {%- if row['col_name'] != '_row_key' -%}
            {%- do columns.append({'name': row['col_name'], 'type': tidemark._kept_type(row['data_type'])}) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- for name in names if names.count(name) > 1 -%}
        {%- do tidemark._refuse(model, "selects two columns named '" ~ name ~ "'", 'Give one of them another name') -%}
    {%- endfor -%}
    {%- for name in names if name | lower in tidemark.own_columns() + ['_alike', '_is_put', '_seq'] -%}
        {%- do tidemark._refuse(model, "selects a column named '" ~ name ~ "', which every bucket table has", 'Select it under another name') -%}
    {%- endfor -%}
    {%- set needed = settings.bucket_by + [settings.object_id] + (settings.key or ['_row_key']) -%}
    {%- for name in needed if name not in names -%}
        {%- do tidemark._refuse(model, "meta names a column '" ~ name ~ "' that the query does not select", 'It selects ' ~ names | join(', ')) -%}
    {%- endfor -%}
    {%- if settings.evaluate == 'rows' -%}
        {%- do tidemark.check_row_wise(sql, model) -%}
    {%- endif -%}
    {{ return(columns) }}
{%- endmacro %}

{#- What Iceberg keeps a type of Spark's as: it has no integers of fewer than 32 bits. -#}
{% macro _kept_type(type) -%}
    {{ return(modules.re.sub('\\b(smallint|tinyint)\\b(?!:)', 'int', type)) }}
{%- endmacro %}

{#- The columns that every bucket table has beside those of its query. -#}
{% macro own_columns() -%}
    {{ return(['bucket', 'object_type', 'object_id', 'row_key', '_op_id', '_replaces', '_digest', '_checksum', '_checkpoint_id']) }}
{%- endmacro %}
