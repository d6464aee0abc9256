{#- Whether a table or view is there. In a unit test there is none of the model's own. -#}
{% macro is_built(relation) -%}
    {{ return(relation is not none and load_relation(relation) is not none) }}
{%- endmacro %}

{#- The same of a table by its name, as manifests have it: `schema.table`. -#}
{% macro is_built_table(table) -%}
    {%- set schema, name = table.split('.') -%}
    {{ return(tidemark.is_built(api.Relation.create(schema=schema, identifier=name))) }}
{%- endmacro %}
