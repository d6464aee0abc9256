{#- The Iceberg branch that this invocation of dbt stages on: `spark.wap.branch` in profiles.yml has the same name. -#}
{% macro branch() -%}
    {{ return('run_' ~ invocation_id | replace('-', '')) }}
{%- endmacro %}
