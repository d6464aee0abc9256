{#- A lookup's query: the names of the buckets of each request, each once. -#}
{% macro lookup_sql(sql, model) -%}
    {%- set definition = adapter.looked_up_settings(model) -%}
    select distinct
        {%- for column in model.config.meta.parameters %}
        {{ tidemark.quote_identifier(column) }},
        {%- endfor %}
        {{ tidemark.bucket_name(definition) }} as bucket_name
    from (
        {{ sql }}
    )
{%- endmacro %}
