{#- Whether a table or view exists. In a unit test a model's own table does not. -#}
{% macro relation_exists(relation) -%}
    {{ return(relation is not none and load_relation(relation) is not none) }}
{%- endmacro %}

{#- The same for a table by its name in manifests: `schema.table`. -#}
{% macro table_exists(table) -%}
    {%- set schema, name = table.split('.') -%}
    {{ return(tidemark.relation_exists(api.Relation.create(schema=schema, identifier=name))) }}
{%- endmacro %}
