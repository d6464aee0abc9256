{#- The checked settings of a definition, from its `meta`. An error names the key and the fix. -#}
{% macro bucket_settings(model) -%}
    {%- set meta = model.config.meta -%}
    {%- set known = ['bucket_by', 'object_type', 'object_id', 'evaluation', 'unique_key'] -%}
    {%- for key in meta if key not in known -%}
        {%- do tidemark.raise_definition_error(model, "meta has an unknown key '" ~ key ~ "'", 'Known are: ' ~ known | join(', ')) -%}
    {%- endfor -%}
    {%- set evaluation = meta.get('evaluation', 'full') -%}
    {%- if evaluation not in ['incremental', 'full'] -%}
        {%- do tidemark.raise_definition_error(model, "meta.evaluation is '" ~ evaluation ~ "'", "Set it to 'incremental' or 'full'") -%}
    {%- endif -%}
    {%- do tidemark.check_model(model) -%}
    {%- if not tidemark.is_name_list(meta.get('bucket_by')) -%}
        {%- do tidemark.raise_definition_error(model, 'meta.bucket_by is missing or not a list of names', 'List the columns that identify a bucket; [] makes one global bucket') -%}
    {%- endif -%}
    {%- if not tidemark._is_name(meta.get('object_id')) -%}
        {%- do tidemark.raise_definition_error(model, 'meta.object_id is missing or not a name', 'Set it to the column with the id of the object') -%}
    {%- endif -%}
    {%- if not tidemark._is_name(meta.get('object_type', model.name)) -%}
        {%- do tidemark.raise_definition_error(model, 'meta.object_type is not a name', "Remove it: the default is the model's name") -%}
    {%- endif -%}
    {%- if evaluation == 'full' and not (meta.get('unique_key') and tidemark.is_name_list(meta.unique_key)) -%}
        {%- do tidemark.raise_definition_error(model, 'meta.unique_key is missing or not a list of names', "List the columns that identify a row of the query, or set evaluation: 'incremental'") -%}
    {%- elif evaluation == 'incremental' and meta.get('unique_key') -%}
        {%- do tidemark.raise_definition_error(model, "meta.unique_key does not go with evaluation: 'incremental'", 'Remove it: the key is _row_key') -%}
    {%- endif -%}
    {{ return({
        'name': model.alias,
        'named_by': meta.bucket_by,
        'bucket_by': meta.bucket_by,
        'object_type': meta.get('object_type', model.name),
        'object_id': meta.object_id,
        'evaluation': evaluation,
        'unique_key': meta.get('unique_key', []),
    }) }}
{%- endmacro %}

{#- Rejects a model whose tables would not be `<name>` and `<name>__ops` of its schema: other code relies on these
    names. -#}
{% macro check_model(model) -%}
    {%- if model.name.endswith('__ops') -%}
        {%- do tidemark.raise_definition_error(model, "the name ends in __ops, as an op log's does", 'Give the model another name') -%}
    {%- elif not modules.re.fullmatch('[a-z_][a-z0-9_]*', model.name) -%}
        {%- do tidemark.raise_definition_error(model, "the name '" ~ model.name ~ "' may only have lower-case letters, digits and _", 'Give the model another name') -%}
    {%- elif model.version is defined and model.version is not none -%}
        {%- do tidemark.raise_definition_error(model, 'definitions do not support versions', 'Make each version a separate model') -%}
    {%- elif model.alias != model.name -%}
        {%- do tidemark.raise_definition_error(model, "the alias is '" ~ model.alias ~ "', but a definition's tables have its name", 'Remove the alias') -%}
    {%- elif model.config.contract.enforced -%}
        {%- do tidemark.raise_definition_error(model, 'model contracts are not supported', 'Remove it, and test the columns') -%}
    {%- endif -%}
{%- endmacro %}

{#- Whether a value is a list of names. -#}
{% macro is_name_list(value) -%}
    {%- if value is not sequence or value is string or value is mapping -%}{{ return(false) }}{%- endif -%}
    {%- for name in value if not tidemark._is_name(name) -%}{{ return(false) }}{%- endfor -%}
    {{ return(true) }}
{%- endmacro %}

{% macro _is_name(value) -%}
    {{ return(value is string and value | length > 0) }}
{%- endmacro %}

{#- Raises an error about a definition: the problem, its file and the fix. `tidemark check` parses this form. -#}
{% macro raise_definition_error(model, what, fix) -%}
    {{ exceptions.raise_compiler_error(what ~ ' (' ~ model.original_file_path ~ '). ' ~ fix ~ '.') }}
{%- endmacro %}
