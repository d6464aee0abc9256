{#- A table of `core` by its name, where `ref` can't be used: in hooks and materializations, which declare nothing. -#}
{% macro core_relation(name) -%}
    {{ return(api.Relation.create(schema='core', identifier=name)) }}
{%- endmacro %}
