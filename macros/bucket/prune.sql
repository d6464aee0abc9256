{#- For `tidemark plan --prune`: drops the tables and the marks of a definition whose model is gone. Marks last: killed between, it
    is still listed as gone. The newest publication may have been of this definition alone: that it is finished stays known. -#}
{% macro prune(definition) -%}
    {%- set rows = api.Relation.create(schema='buckets', identifier=definition) -%}
    {%- do run_query('drop table if exists ' ~ rows ~ ' purge') -%}
    {%- do run_query('drop table if exists ' ~ tidemark.ops_relation(rows) ~ ' purge') -%}
    {%- set progress = tidemark.core_relation('progress') -%}
    {%- set newest = tidemark.newest_publication(tidemark.marks()) -%}
    {%- do run_query('update ' ~ progress ~ ' set publication_id = ' ~ newest ~ " where model = 'checkpoints'") -%}
    {%- do run_query('delete from ' ~ progress ~ ' where model = ' ~ tidemark.literal(definition)) -%}
{%- endmacro %}
