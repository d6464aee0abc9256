{#-
  Ends what a definition has published, before its tables are changed in a way that no branch can stage: by a publication
  of its own, so that older runs which are under way are refused. Its mark is `torn` then, until a run has published the
  definition; it is written with this run's own publication, or by the next run (`recover`). Several threads may do it at
  once. `last_op`: of its log, if that goes.
-#}
{% macro tear(definition, relation, last_op=0) -%}
    {%- set rows = {'standing': tidemark.published_standing(definition), 'definition_hash': tidemark.torn(), 'columns': []} -%}
    {%- set models = [{'name': definition, 'tables': [relation.schema ~ '.' ~ relation.identifier], 'report': rows}] -%}
    {%- if last_op -%}{%- do models.append(tidemark.dropped_log(definition, relation, last_op)) -%}{%- endif -%}
    {%- set publications = tidemark.core_relation('publications') | string -%}
    {%- set main = tidemark.refs([publications])[publications].main -%}
    {%- set seen = tidemark.newest_publication(tidemark.marks()) -%}
    {%- do tidemark.append_manifest(tidemark.manifest(models, {}), main, [seen], tears=true) -%}
{%- endmacro %}

{#- In place of a definition's hash: its tables are not those of any. -#}
{% macro torn() -%}
    {{ return('torn') }}
{%- endmacro %}

{#- How a manifest says that a log was dropped, and what its last op was. -#}
{% macro dropped_log(definition, relation, last_op) -%}
    {%- set report = {'standing': {}, 'staged': [], 'definition_hash': none, 'columns': {'last_op': last_op}} -%}
    {{ return({'name': definition, 'tables': [relation.schema ~ '.' ~ relation.identifier ~ '__ops'], 'report': report}) }}
{%- endmacro %}

{#- The last op of a definition's log; of one that has none yet, that of the logs that were dropped. No op id is used twice. -#}
{% macro last_op(definition, ops) -%}
    {%- set last = tidemark.highest(ops, 'op_id') -%}
    {%- if not last and tidemark.marks() -%}
        {%- set query -%}
            select max(cast(get_json_object(columns, '$.last_op') as bigint)) as last_op
            from {{ tidemark.core_relation('publications') }}
            where model = {{ tidemark.literal(definition) }}
        {%- endset -%}
        {%- set last = run_query(query)[0]['last_op'] | default(0, true) | int -%}
    {%- endif -%}
    {{ return(last) }}
{%- endmacro %}
