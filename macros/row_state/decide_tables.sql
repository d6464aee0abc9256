{#-
  What this run decides of every generation of a table; only what differs from the last decision.

  - `waiting`: registered, but a snapshot of it is queued or running, or its end (`complete_lsn`) is not yet behind the
    checkpoint. Definitions over it stand still.
  - `ready`: its snapshot is admitted, whole.
  - `ended`: dropped, renamed away, or replaced by another generation.

  `snapshot_id` stays with the last admitted snapshot while a new one is under way.
-#}
{% macro decide_tables(source_tables, wal_events, decided, ranges) -%}
    with ranges as (
        {{ tidemark.ranges_select(ranges) }}
    ),

    {% if not tidemark.is_built(decided) -%}
    last_decisions as (
        select
            '' as source,
            '' as table_id,
            '' as status,
            '' as snapshot_id,
            0L as snapshot_lsn,
            {{ tidemark.place('0L', '0L', '0') }} as truncated_position,
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
            max({{ tidemark.place() }}) as truncated_position
        from {{ wal_events }} as records
        where op = 'truncate' and partition_id is null and {{ tidemark.in_ranges(ranges, 'records') }}
        group by source, table_id
    ),

    judged as (
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
        judged.source,
        judged.table_id,
        judged.table_name,
        judged.checkpoint_id,
        judged.new_status as status,
        judged.key_columns,
        if(judged.new_status = 'ready', judged.snapshot_id, last_decisions.snapshot_id) as snapshot_id,
        if(judged.new_status = 'ready', judged.snapshot_lsn, last_decisions.snapshot_lsn) as snapshot_lsn,
        coalesce(truncates.truncated_position, last_decisions.truncated_position) as truncated_position,
        coalesce(last_decisions.valid_from, judged.upper_lsn) as valid_from,
        if(judged.new_status = 'ended', coalesce(judged.ended_lsn, judged.upper_lsn), null) as valid_to
    from judged
    left join last_decisions
        on
            judged.source = last_decisions.source
            and judged.table_id = last_decisions.table_id
    left join truncates
        on
            judged.source = truncates.source
            and judged.table_id = truncates.table_id
    where
        not judged.new_status <=> last_decisions.status
        or (judged.new_status = 'ready' and not judged.snapshot_id <=> last_decisions.snapshot_id)
        or truncates.truncated_position is not null
{%- endmacro %}
