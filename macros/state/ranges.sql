{#- The ranges that this run processes in a model of `core`, a list. -#}
{% macro ranges(model_name) -%}
    {{ return([] if tidemark.only_renders() else tidemark.run().ranges(model_name)) }}
{%- endmacro %}
