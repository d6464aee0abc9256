{#- The first steps of the model, as named queries: the run's scope, its records, its truncates, and what they leave. -#}
{% macro kept_records(events, snapshots, scope, batch) -%}
    scope as (
        {{ tidemark.scope_select(scope) }}
    ),

    records as (
        {{ tidemark.records_in_scope(events, snapshots, batch) }}
    ),

    {%- if batch.truncated %}

    truncates as (
        {{ tidemark.truncates_in_scope(events, batch) }}
    ),
    {%- endif %}

    -- What a truncate is ordered after is gone, snapshot rows that arrive later included.
    kept as (
        select records.*
        from records
        {%- if batch.truncated %}
        left anti join truncates
            on
                records.source = truncates.source
                and records.table_id = truncates.table_id
                and records.partition_id = coalesce(truncates.partition_id, records.partition_id)
                and records.place < truncates.place
        {%- endif %}
    )
{%- endmacro %}

{#-
  The records that a run folds into rows: those of the log, and the rows of the snapshots that it admits, which are ordered
  before all that the log has at or after their stamp. A row of an attempt that was not named done does not count.
  `read_again_lsn`: of a row that was asked for by its key, as the log brings it without all its values, when it was read.
-#}
{% macro records_in_scope(events, snapshots, batch) -%}
    select /*+ broadcast(scope) */
        events.source,
        events.table_id,
        events.table_name,
        events.row_key,
        events.old_row_key,
        events.op,
        events.partition_id,
        events.is_partial,
        events.columns,
        {{ tidemark.place('events.commit_lsn', 'events.change_lsn', 'events.commit_index') }} as place,
        case
            when events.op = 'insert' or events.old_row_key is not null then 1
            when events.op = 'delete' then -1
            else 0
        end as multiplicity,
        cast(null as bigint) as read_again_lsn
    from {{ events }} as events
    inner join scope on {{ tidemark.is_in_scope('events') }}
    where events.op <> 'truncate' and {{ batch.predicate }}
    {%- if batch.admitted %}

    union all

    select /*+ broadcast(scope, chunks) */
        snapshot_rows.source,
        snapshot_rows.table_id,
        snapshot_rows.table_name,
        snapshot_rows.row_key,
        null as old_row_key,
        'insert' as op,
        snapshot_rows.partition_id,
        false as is_partial,
        snapshot_rows.columns,
        {{ tidemark.place('scope.snapshot_lsn', '-1L', 'if(chunks.row_keys is null, -1, 0)') }} as place,
        1 as multiplicity,
        if(chunks.row_keys is null, null, snapshot_rows.read_lsn) as read_again_lsn
    from {{ snapshots.rows }} as snapshot_rows
    inner join scope
        on
            snapshot_rows.source = scope.source
            and snapshot_rows.table_id = scope.table_id
            and snapshot_rows.snapshot_id = scope.snapshot_id
            and scope.is_admitted
    inner join {{ snapshots.chunks }} as chunks
        on
            snapshot_rows.snapshot_id = chunks.snapshot_id
            and snapshot_rows.chunk = chunks.chunk
            and snapshot_rows.attempt = chunks.attempt
            and chunks.state = 'done'
    where snapshot_rows.snapshot_id in ({% for t in batch.admitted %}'{{ t.snapshot_id }}'{{ ', ' if not loop.last }}{% endfor %})
    {%- endif %}
{%- endmacro %}

{#- Whether an event is of a table of the scope, and one that the run folds. -#}
{% macro is_in_scope(events) -%}
    {{ events }}.source = scope.source
    and {{ events }}.table_id = scope.table_id
    and {{ events }}.commit_lsn >= scope.lower_lsn
    and {{ events }}.commit_lsn < scope.upper_lsn
    and not scope.is_ended
{%- endmacro %}

{#- The last truncate of each table, and of each partition of a partitioned one (`partition_id`; null is the whole table). -#}
{% macro truncates_in_scope(events, batch) -%}
    select
        events.source,
        events.table_id,
        events.partition_id,
        max({{ tidemark.place('events.commit_lsn', 'events.change_lsn', 'events.commit_index') }}) as place
    from {{ events }} as events
    inner join scope on {{ tidemark.is_in_scope('events') }}
    where events.op = 'truncate' and {{ batch.predicate }}
    group by events.source, events.table_id, events.partition_id
{%- endmacro %}
