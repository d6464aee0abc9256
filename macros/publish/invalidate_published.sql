{#-
  Ends the validity of what a definition has published, before its tables are changed in a way that no branch can
  stage. It makes a release of its own, so that older concurrent runs are refused. The definition's hash is `torn`
  until a run has published it again. The watermark is written with this run's own release, or by the next run
  (`finish_interrupted_release`). One thread does this at a time: a changed cast in a view invalidates all definitions
  over it. `dropped`: the manifest's rows of dropped tables (`dropped_tables`).
-#}
{% macro invalidate_published(definition, relation, dropped=[]) -%}
    {%- set queue = tidemark.invocation_cache().setdefault('invalidating', []) -%}
    {%- do queue.append(definition) -%}
    {%- do tidemark._wait_for_turn(queue, definition) -%}
    {%- set view_tables = tidemark.watermarks().get(definition, {}).values() | map(attribute='view_tables') | first | default({}, true) -%}
    {%- set rows = {'positions': tidemark.published_positions(definition), 'definition_hash': tidemark.invalidated_hash(), 'columns': [], 'view_tables': view_tables} -%}
    {%- set models = [{'name': definition, 'tables': [relation.schema ~ '.' ~ relation.identifier], 'report': rows}] -%}
    {%- do models.extend(dropped) -%}
    {%- set releases = tidemark.get_core_relation('releases') | string -%}
    {%- set main = tidemark.refs([releases])[releases].main -%}
    {%- set seen = tidemark.newest_release(tidemark.watermarks()) -%}
    {%- do tidemark.append_release(tidemark.manifest(models, {}), main, [seen], invalidates=true) -%}
    {%- do queue.pop(0) -%}
{%- endmacro %}

{#- Waits until a definition is the first of the queue. Jinja has no lock, so it waits by short statements. A definition
    that failed stays in the queue, and has failed the run. -#}
{% macro _wait_for_turn(queue, definition) -%}
    {%- for _ in range(1000) if queue[0] != definition -%}
        {%- do run_query('select 1') -%}
    {%- endfor -%}
    {%- if queue[0] != definition -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was published of ' ~ definition ~ ': timed out waiting for ' ~ queue[0] ~ ' (concurrent schema change). Run it again.'
        ) }}
    {%- endif -%}
{%- endmacro %}

{#- The value in place of a definition's hash if its tables match no definition. -#}
{% macro invalidated_hash() -%}
    {{ return('torn') }}
{%- endmacro %}

{#- The rows of a manifest for a definition's dropped tables: readers do not look for their snapshots from this release
    on. They also record the last op of its log. Without `last_op` only the rows were dropped. -#}
{% macro dropped_tables(definition, relation, last_op=none) -%}
    {%- set rows = relation.schema ~ '.' ~ relation.identifier -%}
    {%- set report = {'positions': {}, 'staged': [], 'definition_hash': none} -%}
    {%- set dropped = [{'name': definition, 'tables': [rows], 'report': dict(report, columns={})}] -%}
    {%- if last_op is not none -%}
        {%- do dropped.append({'name': definition, 'tables': [rows ~ '__ops'], 'report': dict(report, columns={'last_op': last_op})}) -%}
    {%- endif -%}
    {{ return(dropped) }}
{%- endmacro %}

{#- The last op of a definition's log; if the log has none yet, that of its dropped logs. No op id is used twice. -#}
{% macro last_op(definition, ops) -%}
    {%- set last = tidemark.highest(ops, 'op_id') -%}
    {%- if not last and tidemark.watermarks() -%}
        {%- set query -%}
            select max(cast(get_json_object(columns, '$.last_op') as bigint)) as last_op
            from {{ tidemark.get_core_relation('releases') }}
            where model = {{ tidemark.literal(definition) }}
        {%- endset -%}
        {%- set last = run_query(query)[0]['last_op'] | default(0, true) | int -%}
    {%- endif -%}
    {{ return(last) }}
{%- endmacro %}
