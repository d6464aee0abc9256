{#- For `tidemark check`: refuses a definition whose settings or inputs are not right. Asks nothing of Spark: `published` is what
    `core.model_watermarks` has as its view_tables. -#}
{% macro check_definition(unique_id, published={}) -%}
    {%- set model = graph.nodes[unique_id] -%}
    {%- do tidemark.settings_of(model) -%}
    {%- do tidemark.definition_inputs(model) -%}
    {%- do tidemark.check_view_tables(model, published) -%}
{%- endmacro %}
