{#- For `tidemark prune`: drops the tables and the watermarks of a definition whose model was deleted. -#}
{% macro prune(definition, schema='buckets') -%}
    {%- do tidemark.run() -%}
    {%- do adapter.prune(definition, schema) -%}
{%- endmacro %}
