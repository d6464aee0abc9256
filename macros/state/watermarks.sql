{#- The watermarks of all published models, as at the start of the run, by model and source. -#}
{% macro watermarks() -%}
    {{ return({} if tidemark.only_renders() else tidemark.run().watermarks) }}
{%- endmacro %}
