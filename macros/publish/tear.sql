{#-
  Ends what a definition has published, before its tables are changed in a way that no branch can stage: by a release
  of its own, so that older runs which are under way are refused. Its mark is `torn` then, until a run has published the
  definition; it is written with this run's own release, or by the next run (`recover`). One thread does it at a
  time: a cast that is changed in a view tears all definitions over it. `dropped`: what the manifest says of tables that go
  (`dropped_tables`).
-#}
{% macro tear(definition, relation, dropped=[]) -%}
    {%- set queue = tidemark.run_memory().setdefault('tearing', []) -%}
    {%- do queue.append(definition) -%}
    {%- do tidemark._wait_behind(queue, definition) -%}
    {%- set view_tables = tidemark.marks().get(definition, {}).values() | map(attribute='view_tables') | first | default({}, true) -%}
    {%- set rows = {'standing': tidemark.published_standing(definition), 'definition_hash': tidemark.torn(), 'columns': [], 'view_tables': view_tables} -%}
    {%- set models = [{'name': definition, 'tables': [relation.schema ~ '.' ~ relation.identifier], 'report': rows}] -%}
    {%- do models.extend(dropped) -%}
    {%- set releases = tidemark.core_relation('releases') | string -%}
    {%- set main = tidemark.refs([releases])[releases].main -%}
    {%- set seen = tidemark.newest_release(tidemark.marks()) -%}
    {%- do tidemark.append_manifest(tidemark.manifest(models, {}), main, [seen], tears=true) -%}
    {%- do queue.pop(0) -%}
{%- endmacro %}

{#- Until a definition is the first of the queue. Jinja has no lock: a short statement is what it can wait by. One that failed
    stays in the queue, and has failed the run. -#}
{% macro _wait_behind(queue, definition) -%}
    {%- for _ in range(1000) if queue[0] != definition -%}
        {%- do run_query('select 1') -%}
    {%- endfor -%}
    {%- if queue[0] != definition -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was published of ' ~ definition ~ ': it waited in vain for ' ~ queue[0] ~ ', whose columns change too. Run it again.'
        ) }}
    {%- endif -%}
{%- endmacro %}

{#- In place of a definition's hash: its tables are not those of any. -#}
{% macro torn() -%}
    {{ return('torn') }}
{%- endmacro %}

{#- How a manifest says that a definition's tables were dropped, so that readers look for no snapshots of them from there on; and what
    the last op of its log was. Without `last_op` it is the rows alone. -#}
{% macro dropped_tables(definition, relation, last_op=none) -%}
    {%- set rows = relation.schema ~ '.' ~ relation.identifier -%}
    {%- set report = {'standing': {}, 'staged': [], 'definition_hash': none} -%}
    {%- set dropped = [{'name': definition, 'tables': [rows], 'report': dict(report, columns={})}] -%}
    {%- if last_op is not none -%}
        {%- do dropped.append({'name': definition, 'tables': [rows ~ '__ops'], 'report': dict(report, columns={'last_op': last_op})}) -%}
    {%- endif -%}
    {{ return(dropped) }}
{%- endmacro %}

{#- The last op of a definition's log; of one that has none yet, that of the logs that were dropped. No op id is used twice. -#}
{% macro last_op(definition, ops) -%}
    {%- set last = tidemark.highest(ops, 'op_id') -%}
    {%- if not last and tidemark.marks() -%}
        {%- set query -%}
            select max(cast(get_json_object(columns, '$.last_op') as bigint)) as last_op
            from {{ tidemark.core_relation('releases') }}
            where model = {{ tidemark.literal(definition) }}
        {%- endset -%}
        {%- set last = run_query(query)[0]['last_op'] | default(0, true) | int -%}
    {%- endif -%}
    {{ return(last) }}
{%- endmacro %}
