{#- The op log of a definition. -#}
{% macro ops_relation(relation) -%}
    {{ return(api.Relation.create(schema=relation.schema, identifier=relation.identifier ~ '__ops')) }}
{%- endmacro %}
