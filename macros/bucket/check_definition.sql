{#- For `tidemark check`: refuses a definition whose settings or inputs are not right. Asks nothing of Spark. -#}
{% macro check_definition(unique_id) -%}
    {%- set model = graph.nodes[unique_id] -%}
    {%- do tidemark.settings_of(model) -%}
    {%- do tidemark.definition_inputs(model) -%}
{%- endmacro %}
