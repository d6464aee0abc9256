{#- For `tidemark prune`: drops the tables and the watermarks of a definition whose model was deleted. -#}
{% macro prune(definition, schema) -%}
    {%- do tidemark.run() -%}
    {%- do adapter.prune(definition, schema) -%}
{%- endmacro %}
