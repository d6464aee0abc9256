{{ config(
    partition_by=['source', 'table_name'],
    tblproperties={'write.parquet.stats-enabled.column.columns.value': 'false'},
    unique_key=['table_id', 'row_key'],
    post_hook='{% if execute %}{% do tidemark.drop_key_chains() %}{% endif %}',
) }}
-- depends_on: {{ ref('tidemark', 'checkpoints') }}
{%- set ranges = tidemark.ranges('row_state') %}
{%- set scope = tidemark.tables_in_run(ref('tidemark', 'table_status'), ranges) %}
{%- set profile = tidemark.record_profile(ref('tidemark', 'events'), scope, ranges) %}
{%- set adds_to_previous = profile.keyless and is_incremental() %}
{%- set snapshots = {'rows': source('raw', 'snapshot_rows'), 'chunks': source('raw', 'snapshot_chunks')} %}
{%- set kept = tidemark.kept_records(ref('tidemark', 'events'), snapshots, scope, profile) %}
{%- if profile.moved %}{% set chains = tidemark.cache_key_chains(kept) %}{% endif %}
{%- if is_incremental() and not profile.tables %}
{{ tidemark.nothing_new() }}
{%- else %}
with
{{ kept }},
{%- if profile.is_partial %}

filled as (
    {{
        tidemark.fill_across_key_changes(this, profile, chains) if profile.moved
        else tidemark.fill_toast_values(this, profile)
    }}
),
{%- endif %}

latest as (
    {%- if profile.is_partial and not profile.moved %}
    {#- `filled` already has one record for each row. -#}
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
    from {{ 'filled' if profile.is_partial else 'kept' }}
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
        {% if adds_to_previous -%}
        if(scope.keyless, latest.multiplicity + coalesce(base.multiplicity, 0), int(latest.last.op <> 'delete')) as multiplicity,
        {%- else -%}
        if(scope.keyless, latest.multiplicity, int(latest.last.op <> 'delete')) as multiplicity,
        {%- endif %}
        latest.last.partition_id,
        latest.place,
        scope.checkpoint_id
    from latest
    inner join scope on latest.source = scope.source and latest.table_id = scope.table_id
    {%- if adds_to_previous %}
    left join ({{ tidemark.previous_rows(this, profile) }}) as base
        on
            latest.source = base.source
            and latest.table_id = base.table_id
            and latest.row_key = base.row_key
            and scope.keyless
            and not scope.is_admitted
    {%- endif %}

    {%- if profile.sweeps and is_incremental() %}
    {#- A truncate, an admitted snapshot and an ended generation delete rows without a record of their own. #}

    union all

    {{ tidemark.implicit_deletes(this, profile) }}
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
{%- if profile.admitted and is_incremental() %}
{#- A snapshot row that equals the existing row is not a change; nor is a row whose last record was already applied. #}
left anti join {{ tidemark.rows_in_tables(this, profile.admitted) }} as before
    on
        changed.source = before.source
        and changed.table_id = before.table_id
        and changed.row_key = before.row_key
        and changed.multiplicity = before.multiplicity
        and changed.partition_id <=> before.partition_id
        and array_sort(map_entries(changed.columns)) = array_sort(map_entries(before.columns))
        and (
            changed.place.change_lsn = -1
            or changed.place = {{ tidemark.log_order('before.commit_lsn', 'before.change_lsn', 'before.commit_index') }}
        )
{%- endif %}
{%- endif %}
