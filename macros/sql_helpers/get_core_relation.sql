{#- A table of `core` by its name, for hooks and materializations, where `ref` cannot be used. -#}
{% macro get_core_relation(name) -%}
    {{ return(api.Relation.create(schema='core', identifier=name)) }}
{%- endmacro %}
