{#- Schemas are named as configured: `buckets`, not `<schema of the target>_buckets` as by dbt's default. -#}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ custom_schema_name or target.schema }}
{%- endmacro %}
