{#- The checked settings of a lookup, as those of the definition that it is kept as. Errors name the key and what to do. -#}
{% macro parameters_settings(model) -%}
    {%- set meta = model.config.meta -%}
    {%- set known = ['parameters', 'bucket'] -%}
    {%- for key in meta if key not in known -%}
        {%- do tidemark._refuse(model, "meta has an unknown key '" ~ key ~ "'", 'Known are: ' ~ known | join(', ')) -%}
    {%- endfor -%}
    {%- do tidemark._check_model(model) -%}
    {%- if not tidemark._is_list(meta.get('parameters')) -%}
        {%- do tidemark._refuse(model, 'meta.parameters is missing or no list of names', 'Name the columns that a request gives; [] is for everybody') -%}
    {%- endif -%}
    {%- set definition = tidemark._looked_up(model) -%}
    {%- if definition.unique_id not in model.depends_on.nodes -%}
        {%- do tidemark._refuse(model, "does not depend on '" ~ definition.name ~ "'", "Add the line -- depends_on: {{ ref('" ~ definition.name ~ "') }}, so that dbt runs it after that") -%}
    {%- endif -%}
    {%- set text = tidemark.normalized_sql(model.get('compiled_code') or model.raw_code) -%}
    {%- if modules.re.search('\\bref\\(([^()]*,)?[\'"]' ~ definition.name ~ '[\'"]\\)|\\bbuckets`?\\.`?' ~ definition.name ~ '\\b', text) -%}
        {%- do tidemark._refuse(model, "reads '" ~ definition.name ~ "', which may change without its being told", 'Select from staging views, and name the definition in a comment only') -%}
    {%- endif -%}
    {{ return({
        'name': model.alias,
        'named_by': tidemark.bucket_settings(definition).bucket_by,
        'bucket_by': meta.parameters,
        'object_type': 'bucket',
        'object_id': 'bucket_name',
        'evaluation': 'full',
        'unique_key': meta.parameters + ['bucket_name'],
    }) }}
{%- endmacro %}

{#- The definition whose buckets a lookup names. -#}
{% macro _looked_up(model) -%}
    {%- set name = model.config.meta.get('bucket') -%}
    {%- for node in graph.nodes.values() if node.name == name and node.config.materialized == 'bucket' -%}
        {{ return(node) }}
    {%- endfor -%}
    {%- do tidemark._refuse(model, "meta.bucket is '" ~ name ~ "', which is no definition", 'Name a bucket model') -%}
{%- endmacro %}

{#- A lookup's query, giving the names of buckets for each request, each once. -#}
{% macro parameters_sql(sql, model) -%}
    {%- set definition = tidemark.bucket_settings(tidemark._looked_up(model)) -%}
    select distinct
        {%- for column in model.config.meta.parameters %}
        {{ tidemark.quoted(column) }},
        {%- endfor %}
        concat({{ tidemark.literal(definition.name) }}, {{ tidemark.json_of_strings(definition.bucket_by) }}) as bucket_name
    from (
        {{ sql }}
    )
{%- endmacro %}

{#- Refuses a lookup whose query, `sql`, lacks a column that it is to select. -#}
{% macro check_lookup(sql, model) -%}
    {%- set names = run_query('describe query ' ~ sql) | map(attribute='col_name') | map('lower') | list -%}
    {%- set definition = tidemark.bucket_settings(tidemark._looked_up(model)) -%}
    {%- for name in model.config.meta.parameters + definition.bucket_by if name | lower not in names -%}
        {%- do tidemark._refuse(
            model, "does not select '" ~ name ~ "'",
            'A lookup selects what a request gives, and the bucket_by of ' ~ definition.name ~ '; this one ' ~ names | join(', ')
        ) -%}
    {%- endfor -%}
{%- endmacro %}

{#- Whether a model is one. -#}
{% macro is_lookup(model) -%}
    {{ return(model.config.materialized == 'bucket_lookup') }}
{%- endmacro %}

{#- The settings of a definition of either kind. -#}
{% macro settings_of(model) -%}
    {%- if tidemark.is_lookup(model) -%}
        {{ return(tidemark.parameters_settings(model)) }}
    {%- endif -%}
    {{ return(tidemark.bucket_settings(model)) }}
{%- endmacro %}

{#- Whether a node is a definition: one with rows and an op log. -#}
{% macro is_definition(node) -%}
    {{ return(node.resource_type == 'model' and node.config.materialized in ['bucket', 'bucket_lookup']) }}
{%- endmacro %}
