{#- The schemas of folders are used unchanged: `core`, not `<target>_core`. -#}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ custom_schema_name or target.schema }}
{%- endmacro %}
