{#- The checked settings of a lookup, in the form of a definition's settings. An error names the key and the fix. -#}
{% macro lookup_settings(model) -%}
    {%- set meta = model.config.meta -%}
    {%- set known = ['parameters', 'bucket'] -%}
    {%- for key in meta if key not in known -%}
        {%- do tidemark.raise_definition_error(model, "meta has an unknown key '" ~ key ~ "'", 'Known are: ' ~ known | join(', ')) -%}
    {%- endfor -%}
    {%- do tidemark.check_model(model) -%}
    {%- if not tidemark.is_name_list(meta.get('parameters')) -%}
        {%- do tidemark.raise_definition_error(model, 'meta.parameters is missing or not a list of names', 'List the columns that a request gives; [] is for all readers') -%}
    {%- endif -%}
    {%- set definition = tidemark._looked_up_definition(model) -%}
    {%- if definition.unique_id not in model.depends_on.nodes -%}
        {%- do tidemark.raise_definition_error(model, "does not depend on '" ~ definition.name ~ "'", "Add the line -- depends_on: {{ ref('" ~ definition.name ~ "') }}, so that dbt runs the definition first") -%}
    {%- endif -%}
    {%- set text = tidemark.normalized_sql(model.get('compiled_code') or model.raw_code) -%}
    {%- if modules.re.search('\\bref\\(([^()]*,)?[\'"]' ~ definition.name ~ '[\'"]\\)|\\bbuckets`?\\.`?' ~ definition.name ~ '\\b', text) -%}
        {%- do tidemark.raise_definition_error(model, "reads '" ~ definition.name ~ "', whose changes are not tracked", 'Select from staging views, and name the definition in a comment only') -%}
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
{% macro _looked_up_definition(model) -%}
    {%- set name = model.config.meta.get('bucket') -%}
    {%- for node in graph.nodes.values() if node.name == name and node.config.materialized == 'bucket' -%}
        {{ return(node) }}
    {%- endfor -%}
    {%- do tidemark.raise_definition_error(model, "meta.bucket is '" ~ name ~ "', which is not a definition", 'Name a bucket model') -%}
{%- endmacro %}

{#- A lookup's query: the names of the buckets of each request, each once. -#}
{% macro lookup_sql(sql, model) -%}
    {%- set definition = tidemark.bucket_settings(tidemark._looked_up_definition(model)) -%}
    select distinct
        {%- for column in model.config.meta.parameters %}
        {{ tidemark.quote_identifier(column) }},
        {%- endfor %}
        concat({{ tidemark.literal(definition.name) }}, {{ tidemark.json_of_strings(definition.bucket_by) }}) as bucket_name
    from (
        {{ sql }}
    )
{%- endmacro %}

{#- Rejects a lookup whose query, `sql`, lacks a required column. -#}
{% macro check_lookup(sql, model) -%}
    {%- set names = run_query('describe query ' ~ sql) | map(attribute='col_name') | map('lower') | list -%}
    {%- set definition = tidemark.bucket_settings(tidemark._looked_up_definition(model)) -%}
    {%- for name in model.config.meta.parameters + definition.bucket_by if name | lower not in names -%}
        {%- do tidemark.raise_definition_error(
            model, "does not select '" ~ name ~ "'",
            'A lookup selects its parameters and the bucket_by of ' ~ definition.name ~ '; this one selects ' ~ names | join(', ')
        ) -%}
    {%- endfor -%}
{%- endmacro %}

{#- Whether a model is a lookup. -#}
{% macro is_lookup(model) -%}
    {{ return(model.config.materialized == 'bucket_lookup') }}
{%- endmacro %}

{#- The settings of a definition of either kind. -#}
{% macro definition_settings(model) -%}
    {%- if tidemark.is_lookup(model) -%}
        {{ return(tidemark.lookup_settings(model)) }}
    {%- endif -%}
    {{ return(tidemark.bucket_settings(model)) }}
{%- endmacro %}

{#- Whether a node is a definition: a model with rows and an op log. -#}
{% macro is_definition(node) -%}
    {{ return(node.resource_type == 'model' and node.config.materialized in ['bucket', 'bucket_lookup']) }}
{%- endmacro %}
