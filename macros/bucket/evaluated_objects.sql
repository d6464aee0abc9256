{#- The result of the query, with the columns of a bucket. If the scope is 'changes', of the changed rows only. -#}
{% macro evaluated_objects(sql, settings, columns, plan) -%}
    select
        {{ tidemark.bucket_name(settings) }} as bucket,
        {{ tidemark.literal(settings.object_type) }} as object_type,
        {{ tidemark.object_id(settings) }} as object_id,
        {%- for column in columns %}
        {{ tidemark.quote_identifier(column.name) }},
        {%- endfor %}
        {{ tidemark.json_of_strings(settings.unique_key) if settings.unique_key else '_row_key' }} as row_key
    from (
        {{ tidemark.with_change_filter(sql, plan) }}
    )
{%- endmacro %}
