{#- A SQL string literal; NULL for an empty text. -#}
{% macro literal_or_null(text) -%}
    {{ tidemark.literal(text) if text else 'cast(null as string)' }}
{%- endmacro %}
