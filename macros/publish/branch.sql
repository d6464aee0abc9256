{#- The Iceberg branch on which this invocation of dbt stages: `spark.wap.branch` in profiles.yml has the same name. -#}
{% macro branch() -%}
    {{ return('run_' ~ invocation_id | replace('-', '')) }}
{%- endmacro %}
