{#-
  Deletes the tombstones of `core.row_state` that no process needs any more: those of runs more than `keep_seconds`
  ago that every definition is past, also a definition whose model was deleted; only in tables without a queued or
  running snapshot, which could bring a deleted row back.
-#}
{% macro purge_tombstones(keep_seconds) -%}
    {%- set passed = tidemark._passed_checkpoints(keep_seconds) -%}
    {%- set settled = tidemark._settled_tables() if passed else [] -%}
    {%- if settled -%}
        {%- set row_state = tidemark.get_core_relation('row_state') | string -%}
        {%- set tombstones = tidemark._tombstones(passed, settled) -%}
        {%- set count = run_query('select count(*) as n from ' ~ row_state ~ ' where ' ~ tombstones)[0]['n'] | int -%}
        {%- if count -%}
            {%- do tidemark.publish_maintenance(
                'row_state', row_state, ['delete from ' ~ row_state ~ ' where ' ~ tombstones], count ~ ' tombstones purged'
            ) -%}
        {%- endif -%}
    {%- endif -%}
{%- endmacro %}

{% macro _tombstones(passed, settled) -%}
    deleted
    and (
        {%- for source, checkpoint_id in passed.items() %}
        {{ 'or ' if not loop.first }}(source = '{{ source }}' and checkpoint_id <= {{ checkpoint_id }})
        {%- endfor %}
    )
    and table_id in (
        {%- for table_id in settled %}
        {{ tidemark.literal(table_id) }}{{ ',' if not loop.last }}
        {%- endfor %}
    )
{%- endmacro %}

{#- {source: the newest checkpoint_id that is old enough, and that every definition over the source is past}. -#}
{% macro _passed_checkpoints(keep_seconds) -%}
    {%- set watermarks = tidemark.watermarks() -%}
    {%- set passed = {} -%}
    {%- if 'row_state' in watermarks -%}
        {%- for source, checkpoint_id in tidemark.old_checkpoints(keep_seconds).items() -%}
            {%- set ids = [checkpoint_id] -%}
            {%- for model, own_watermarks in watermarks.items() if source in own_watermarks -%}
                {%- if model == 'row_state' or own_watermarks[source].definition_hash -%}
                    {%- do ids.append(own_watermarks[source].checkpoint_id) -%}
                {%- endif -%}
            {%- endfor -%}
            {%- do passed.update({source: ids | min}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(passed) }}
{%- endmacro %}

{#- The table_ids whose newest snapshot is admitted, or that have ended. -#}
{% macro _settled_tables() -%}
    {%- set query -%}
        with decided as (
            select
                source,
                table_id,
                max_by(struct(status, snapshot_id), checkpoint_id) as now
            from {{ tidemark.get_core_relation('table_status') }}
            group by source, table_id
        )

        select registered.table_id
        from {{ api.Relation.create(schema='raw', identifier='source_tables') }} as registered
        inner join decided
            on
                registered.source = decided.source
                and registered.table_id = decided.table_id
        where
            (registered.state = 'ended' and decided.now.status = 'ended')
            or (
                registered.state = 'done' and decided.now.status = 'ready'
                and registered.snapshot_id = decided.now.snapshot_id
            )
    {%- endset -%}
    {{ return(run_query(query) | map(attribute='table_id') | list) }}
{%- endmacro %}
