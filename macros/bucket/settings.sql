{#- The checked settings of a definition, from its `meta`. Errors name the key and what to do. -#}
{% macro bucket_settings(model) -%}
    {%- set meta = model.config.meta -%}
    {%- set known = ['bucket_by', 'object_type', 'object_id', 'evaluate', 'key'] -%}
    {%- for key in meta if key not in known -%}
        {%- do tidemark._refuse(model, "meta has an unknown key '" ~ key ~ "'", 'Known are: ' ~ known | join(', ')) -%}
    {%- endfor -%}
    {%- set evaluate = meta.get('evaluate', 'whole') -%}
    {%- if evaluate not in ['rows', 'whole'] -%}
        {%- do tidemark._refuse(model, "meta.evaluate is '" ~ evaluate ~ "'", "Set it to 'rows' or 'whole'") -%}
    {%- endif -%}
    {%- do tidemark._check_name(model) -%}
    {%- if not tidemark._is_list(meta.get('bucket_by')) -%}
        {%- do tidemark._refuse(model, 'meta.bucket_by is missing or no list', 'Name the columns that make a bucket; [] makes one global bucket') -%}
    {%- endif -%}
    {%- if not meta.get('object_id') -%}
        {%- do tidemark._refuse(model, 'meta.object_id is missing', 'Name the column with the id of the object') -%}
    {%- endif -%}
    {%- if evaluate == 'whole' and not (meta.get('key') and tidemark._is_list(meta.key)) -%}
        {%- do tidemark._refuse(model, 'meta.key is missing or no list', "Name the columns that tell the rows of the query apart, or set evaluate: 'rows'") -%}
    {%- elif evaluate == 'rows' and meta.get('key') -%}
        {%- do tidemark._refuse(model, "meta.key does not go with evaluate: 'rows'", 'Leave it out: the key is _row_key') -%}
    {%- endif -%}
    {{ return({
        'name': model.alias,
        'bucket_by': meta.bucket_by,
        'object_type': meta.get('object_type', model.name),
        'object_id': meta.object_id,
        'evaluate': evaluate,
        'key': meta.get('key', []),
    }) }}
{%- endmacro %}

{% macro _check_name(model) -%}
    {%- if model.alias.endswith('__ops') -%}
        {%- do tidemark._refuse(model, "the name ends in __ops, as an op log's does", 'Give the model another name') -%}
    {%- endif -%}
{%- endmacro %}

{% macro _is_list(value) -%}
    {{ return(value is sequence and value is not string and value is not mapping) }}
{%- endmacro %}

{% macro _refuse(model, what, fix) -%}
    {{ exceptions.raise_compiler_error(what ~ ' (' ~ model.original_file_path ~ '). ' ~ fix ~ '.') }}
{%- endmacro %}
