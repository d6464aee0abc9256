{{ config(
    partition_by=['source', 'table_name'],
    tblproperties={'write.parquet.stats-enabled.column.columns.value': 'false'},
    supersedes=['table_id', 'row_key'],
    post_hook='{% do tidemark.drop_links() %}{% if tidemark.ranges("row_state") %}{% do tidemark.input_states() %}{% endif %}',
) }}
-- depends_on: {{ ref('checkpoints') }}
{%- set ranges = tidemark.ranges('row_state') %}
{%- set scope = tidemark.row_scope(ref('table_status'), ranges) %}
{%- set batch = tidemark.row_batch(ref('events'), scope, ranges) %}
{%- set exists = tidemark.is_built(this) %}
{%- set counts = batch.keyless and exists %}
{%- set snapshots = {'rows': source('raw', 'snapshot_rows'), 'chunks': source('raw', 'snapshot_chunks')} %}
{%- set kept = tidemark.kept_records(ref('events'), snapshots, scope, batch) %}
{%- if batch.moved %}{% set links = tidemark.cache_links(kept) %}{% endif %}
{%- if exists and not batch.tables %}
{{ nothing_new() }}
{%- else %}
with
{{ kept }},
{%- if batch.is_partial %}

filled as (
    {{ tidemark.followed_records(this, batch, links) if batch.moved else tidemark.filled_records(this, batch) }}
),
{%- endif %}

latest as (
    {%- if batch.is_partial and not batch.moved %}
    {#- One record for each row already. -#}
    select
        source,
        table_id,
        row_key,
        place,
        struct(table_name, op, partition_id, columns) as last,
        multiplicity
    from filled
    {%- else %}
    select
        source,
        table_id,
        row_key,
        max(place) as place,
        max_by(struct(table_name, op, partition_id, columns), place) as last,
        sum(multiplicity) as multiplicity
    from {{ 'filled' if batch.is_partial else 'kept' }}
    group by source, table_id, row_key
    {%- endif %}
),

changed as (
    select /*+ broadcast(scope) */
        latest.source,
        latest.table_id,
        latest.last.table_name,
        latest.row_key,
        latest.last.columns,
        {% if counts -%}
        if(scope.keyless, latest.multiplicity + coalesce(base.multiplicity, 0), int(latest.last.op <> 'delete')) as multiplicity,
        {%- else -%}
        if(scope.keyless, latest.multiplicity, int(latest.last.op <> 'delete')) as multiplicity,
        {%- endif %}
        latest.last.partition_id,
        latest.place,
        scope.checkpoint_id
    from latest
    inner join scope on latest.source = scope.source and latest.table_id = scope.table_id
    {%- if counts %}
    left join ({{ tidemark.rows_before(this, batch) }}) as base
        on
            latest.source = base.source
            and latest.table_id = base.table_id
            and latest.row_key = base.row_key
            and scope.keyless
            and not scope.is_admitted
    {%- endif %}

    {%- if batch.sweeps and exists %}
    {#- A truncate, an admitted snapshot and an ended generation take rows away that no record names. #}

    union all

    {{ tidemark.swept_rows(this, batch) }}
    {%- endif %}
)

select
    changed.source,
    changed.table_id,
    changed.table_name,
    changed.row_key,
    changed.columns,
    changed.multiplicity <= 0 as deleted,
    cast(greatest(changed.multiplicity, 0) as int) as multiplicity,
    changed.partition_id,
    changed.place.commit_lsn,
    changed.place.change_lsn,
    changed.place.commit_index,
    changed.checkpoint_id
from changed
{%- if batch.admitted and exists %}
{#- A row that a new snapshot brings as it was is not a change, nor is one whose last record it already has. #}
left anti join {{ tidemark.rows_of_tables(this, batch.admitted) }} as before
    on
        changed.source = before.source
        and changed.table_id = before.table_id
        and changed.row_key = before.row_key
        and changed.multiplicity = before.multiplicity
        and changed.partition_id <=> before.partition_id
        and array_sort(map_entries(changed.columns)) = array_sort(map_entries(before.columns))
        and (
            changed.place.change_lsn = -1
            or changed.place = {{ tidemark.place('before.commit_lsn', 'before.change_lsn', 'before.commit_index') }}
        )
{%- endif %}
{%- endif %}
