{#- For `tidemark plan --prune`: drops the tables and the marks of a definition whose model is gone. Marks last: killed between, it
    is still listed as gone. -#}
{% macro prune(definition) -%}
    {%- set rows = api.Relation.create(schema='buckets', identifier=definition) -%}
    {%- do run_query('drop table if exists ' ~ rows ~ ' purge') -%}
    {%- do run_query('drop table if exists ' ~ tidemark.ops_relation(rows) ~ ' purge') -%}
    {%- do run_query('delete from ' ~ tidemark.core_relation('progress') ~ ' where model = ' ~ tidemark.literal(definition)) -%}
{%- endmacro %}
