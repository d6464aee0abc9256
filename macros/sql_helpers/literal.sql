{#- A SQL string literal. -#}
{% macro literal(text) -%}
    '{{ text | replace("\\", "\\\\") | replace("'", "\\'") }}'
{%- endmacro %}
