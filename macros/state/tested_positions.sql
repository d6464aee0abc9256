{#- The positions that a data test of a model of `core` checks. -#}
{% macro tested_positions(model_name) -%}
    {{ return({} if tidemark.only_renders() else tidemark.run().tested_positions(model_name)) }}
{%- endmacro %}
