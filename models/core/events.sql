{#- Parquet statistics of `columns` are not needed, and would keep its largest and smallest value in memory. -#}
{{ config(
    partition_by=['source'],
    tblproperties={'write.parquet.stats-enabled.column.columns.value': 'false'},
) }}
-- depends_on: {{ ref('tidemark', 'checkpoints') }}
{%- set ranges = tidemark.ranges('events') %}
{%- set slices = tidemark.log_slices(source('raw', 'wal_events'), ranges) %}

{%- if is_incremental() and not ranges %}
{{ tidemark.nothing_new() }}
{%- else %}
with ranges as (
    {{ tidemark.ranges_select(ranges) }}
),

-- The completed ranges of each writer. Records outside of them, such as the committed half of a transaction whose slot
-- was lost, are never read.
finished as (
    select
        source,
        writer,
        start_position,
        max(position) as position
    from {{ source('raw', 'stream_positions') }}
    group by source, writer, start_position
),

committed as (
    select /*+ broadcast(ranges) */
        records.*,
        ranges.checkpoint_id,
        {{ tidemark.slice_of(slices, 'records') }} as slice
    from {{ source('raw', 'wal_events') }} as records
    inner join ranges
        on
            records.source = ranges.source
            and records.commit_lsn >= ranges.lower_lsn
            and records.commit_lsn < ranges.upper_lsn
    left semi join finished
        on
            records.source = finished.source
            and records.writer = finished.writer
            and records.commit_lsn >= finished.start_position
            and records.commit_lsn < finished.position
    where {{ tidemark.in_ranges(ranges, 'records') }}
),

-- A replayed record has the same (commit_lsn, commit_index) as its first copy, and sorts next to it.
ordered as (
    select
        *,
        dense_rank() over log as rank_in_slice,
        lag(struct(commit_lsn, change_lsn, commit_index, writer)) over log
        <=> struct(commit_lsn, change_lsn, commit_index, writer) as is_replay
    from committed
    window log as (partition by source, checkpoint_id, slice order by commit_lsn, change_lsn, commit_index, writer)
)

select
    source,
    -- 26 bits for the checkpoint (beyond that, the multiplication fails), 6 for the slice, 31 for the rank.
    checkpoint_id * {{ 2 ** 37 }}L + slice * {{ 2 ** 31 }}L + rank_in_slice as seq,
    writer,
    commit_lsn,
    commit_index,
    change_lsn,
    commit_ts,
    xid,
    op,
    table_name,
    table_id,
    partition_id,
    row_key,
    old_row_key,
    coalesce(is_partial, false) as is_partial,
    columns,
    checkpoint_id
from ordered
where not is_replay
{%- endif %}
