{#- The schema of the package's own models: `core`, not `<target>_core`. dbt applies it to no other package's models. -#}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ custom_schema_name or target.schema }}
{%- endmacro %}
