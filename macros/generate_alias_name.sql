{#- The name of the package's own models. dbt applies it to no other package's models. -#}
{% macro generate_alias_name(custom_alias_name, node) -%}
    {{ custom_alias_name or node.name }}
{%- endmacro %}
