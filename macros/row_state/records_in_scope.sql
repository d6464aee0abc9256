{#-
  The records that a run folds into rows: those of the log, and the rows of the snapshots that it admits. A snapshot
  row is ordered before all records at or after its snapshot LSN. Rows of an attempt that was not marked done are
  ignored. `read_again_lsn`: when a row was read again by its key because the log lacks some of its values.
-#}
{% macro records_in_scope(events, snapshots, profile) -%}
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
        {{ tidemark.log_order('events.commit_lsn', 'events.change_lsn', 'events.commit_index') }} as place,
        case
            when events.op = 'insert' or events.old_row_key is not null then 1
            when events.op = 'delete' then -1
            else 0
        end as multiplicity,
        cast(null as bigint) as read_again_lsn
    from {{ events }} as events
    inner join scope on {{ tidemark.is_in_scope('events') }}
    where events.op <> 'truncate' and {{ profile.predicate }}
    {%- if profile.admitted %}

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
        {{ tidemark.log_order('scope.snapshot_lsn', '-1L', 'if(chunks.row_keys is null, -1, 0)') }} as place,
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
    where snapshot_rows.snapshot_id in ({% for t in profile.admitted %}'{{ t.snapshot_id }}'{{ ', ' if not loop.last }}{% endfor %})
    {%- endif %}
{%- endmacro %}
