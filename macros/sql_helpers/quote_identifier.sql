{#- A name as a SQL identifier. -#}
{% macro quote_identifier(name) -%}
    `{{ name | replace('`', '``') }}`
{%- endmacro %}
