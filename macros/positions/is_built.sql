{#- Whether a table or view is there. In a unit test there is none of the model's own. -#}
{% macro is_built(relation) -%}
    {{ return(relation is not none and load_relation(relation) is not none) }}
{%- endmacro %}
