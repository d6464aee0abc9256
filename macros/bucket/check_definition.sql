{#- For `tidemark check`: rejects a definition whose settings or inputs are invalid, without a query to Spark.
    `published`: its view_tables in `core.model_watermarks`. -#}
{% macro check_definition(unique_id, published) -%}
    {%- set model = graph.nodes[unique_id] -%}
    {%- set nodes = tidemark.run().graph -%}
    {%- do adapter.definition_settings(model) -%}
    {%- do nodes.inputs(model) -%}
    {%- do nodes.check_view_tables(model, published) -%}
{%- endmacro %}
