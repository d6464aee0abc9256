{#- A name as a SQL identifier. -#}
{% macro quoted(name) -%}
    `{{ name | replace('`', '``') }}`
{%- endmacro %}
