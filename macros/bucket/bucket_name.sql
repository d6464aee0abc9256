{#- The name of a row's bucket, computed from its columns. -#}
{% macro bucket_name(settings) -%}
    concat({{ tidemark.literal(settings.name) }}, {{ tidemark.json_of_strings(settings.bucket_by) }})
{%- endmacro %}
