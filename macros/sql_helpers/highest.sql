{#- The highest value of a BIGINT column, 0 for an empty or missing table. Iceberg answers from its metadata. -#}
{% macro highest(relation, column) -%}
    {%- if not execute or not tidemark.relation_exists(relation) -%}
        {{ return(0) }}
    {%- endif -%}
    {{ return(run_query('select max(' ~ column ~ ') as highest from ' ~ relation)[0]['highest'] | int) }}
{%- endmacro %}
