{#- The folders' schemas are used as they are: `core`, not `<target>_core`. -#}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ custom_schema_name or target.schema }}
{%- endmacro %}
