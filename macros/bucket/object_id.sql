{#- The id of a row's object. -#}
{% macro object_id(settings) -%}
    cast({{ tidemark.quote_identifier(settings.object_id) }} as string)
{%- endmacro %}
