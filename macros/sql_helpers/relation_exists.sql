{#- Whether a table or view exists. In a unit test a model's own table does not. -#}
{% macro relation_exists(relation) -%}
    {{ return(relation is not none and load_relation(relation) is not none) }}
{%- endmacro %}
