{#-
  The decisions of this run about every generation of a table; only those that differ from the last decision.

  - `waiting`: registered, but a snapshot of it is queued or running, or the snapshot's end (`complete_lsn`) is not yet behind the
    checkpoint. Definitions over it wait.
  - `ready`: its snapshot is complete and admitted.
  - `ended`: dropped, renamed out of the selection, or replaced by another generation.

  `snapshot_id` keeps the last admitted snapshot while a new one is in progress.
-#}
{% macro decide_tables(source_tables, wal_events, decided, ranges) -%}
    with ranges as (
        {{ tidemark.ranges_select(ranges) }}
    ),

    {% if not is_incremental() -%}
    last_decisions as (
        select
            '' as source,
            '' as table_id,
            '' as status,
            '' as snapshot_id,
            0L as snapshot_lsn,
            {{ tidemark.log_order('0L', '0L', '0') }} as truncated_position,
            0L as valid_from
        where false
    ),
    {%- else -%}
    last_decisions as (
        select
            source,
            table_id,
            max_by(status, checkpoint_id) as status,
            max_by(snapshot_id, checkpoint_id) as snapshot_id,
            max_by(snapshot_lsn, checkpoint_id) as snapshot_lsn,
            max(truncated_position) as truncated_position,
            min(valid_from) as valid_from
        from {{ decided }}
        group by source, table_id
    ),
    {%- endif %}

    truncates as (
        select
            source,
            table_id,
            max({{ tidemark.log_order() }}) as truncated_position
        from {{ wal_events }} as records
        where op = 'truncate' and partition_id is null and {{ tidemark.in_ranges(ranges, 'records') }}
        group by source, table_id
    ),

    registered_status as (
        select
            registered.*,
            ranges.checkpoint_id,
            ranges.upper_lsn,
            case
                when registered.state = 'ended' and coalesce(registered.ended_lsn, 0) < ranges.upper_lsn then 'ended'
                when registered.state = 'done' and registered.complete_lsn < ranges.upper_lsn then 'ready'
                else 'waiting'
            end as new_status
        from {{ source_tables }} as registered
        inner join ranges on registered.source = ranges.source
    )

    select
        registered_status.source,
        registered_status.table_id,
        registered_status.table_name,
        registered_status.checkpoint_id,
        registered_status.new_status as status,
        registered_status.key_columns,
        if(registered_status.new_status = 'ready', registered_status.snapshot_id, last_decisions.snapshot_id) as snapshot_id,
        if(registered_status.new_status = 'ready', registered_status.snapshot_lsn, last_decisions.snapshot_lsn) as snapshot_lsn,
        coalesce(truncates.truncated_position, last_decisions.truncated_position) as truncated_position,
        coalesce(last_decisions.valid_from, registered_status.upper_lsn) as valid_from,
        if(registered_status.new_status = 'ended', coalesce(registered_status.ended_lsn, registered_status.upper_lsn), null) as valid_to
    from registered_status
    left join last_decisions
        on
            registered_status.source = last_decisions.source
            and registered_status.table_id = last_decisions.table_id
    left join truncates
        on
            registered_status.source = truncates.source
            and registered_status.table_id = truncates.table_id
    where
        not registered_status.new_status <=> last_decisions.status
        or (registered_status.new_status = 'ready' and not registered_status.snapshot_id <=> last_decisions.snapshot_id)
        or truncates.truncated_position is not null
{%- endmacro %}
