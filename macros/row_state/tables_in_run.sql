{#-
  The scope of a run of `row_state`, the generations that it processes: a list of {source, table_id, table_name,
  checkpoint_id, lower, upper, snapshot_id, snapshot_lsn, keyless, is_admitted, is_ended}. Only generations with an
  admitted snapshot are in it; one that had ended and returns is not, until its new snapshot is admitted. For a newly admitted one, the records since the snapshot LSN are folded again over the
  snapshot's rows, so no earlier records have to be kept for it; for the others, the records of the run's range.
-#}
{% macro tables_in_run(tables, ranges) -%}
    {%- set scope = [] -%}
    {%- if execute and ranges -%}
        {%- for row in run_query(tidemark._tables_in_run_query(tables, ranges)) -%}
            {%- do scope.append({
                'source': row['source'], 'table_id': row['table_id'], 'table_name': row['table_name'],
                'checkpoint_id': row['checkpoint_id'] | int, 'lower': row['lower_lsn'] | int, 'upper': row['upper_lsn'] | int,
                'snapshot_id': row['snapshot_id'], 'snapshot_lsn': row['snapshot_lsn'] | int,
                'keyless': row['keyless'], 'is_admitted': row['is_admitted'], 'is_ended': row['is_ended'],
            }) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(scope) }}
{%- endmacro %}

{% macro _tables_in_run_query(tables, ranges) -%}
    with ranges as (
        {{ tidemark.ranges_select(ranges) }}
    ),

    decided as (
        select
            decisions.source,
            decisions.table_id,
            max(decisions.table_name) as table_name,
            max(ranges.checkpoint_id) as checkpoint_id,
            max(ranges.lower_lsn) as range_lsn,
            max(ranges.upper_lsn) as upper_lsn,
            max_by(decisions.key_columns, decisions.checkpoint_id) is null as keyless,
            max_by(struct(decisions.status, decisions.snapshot_id, decisions.snapshot_lsn), decisions.checkpoint_id) as now,
            max_by(struct(decisions.status, decisions.snapshot_id), decisions.checkpoint_id)
                filter (where decisions.checkpoint_id <= ranges.since) as before,
            max_by(decisions.status, decisions.checkpoint_id) filter (where decisions.status <> 'waiting') as settled_status
        from {{ tables }} as decisions
        inner join ranges
            on
                decisions.source = ranges.source
                and decisions.checkpoint_id <= ranges.checkpoint_id
        group by decisions.source, decisions.table_id
    ),

    classified as (
        select
            *,
            now.status <> 'ended' and not now.snapshot_id <=> before.snapshot_id as is_admitted,
            now.status = 'ended' as is_ended
        from decided
        where
            now.snapshot_id is not null
            and (now.status <> 'ended' or not before.status <=> 'ended')
            and (now.status <> 'waiting' or settled_status <> 'ended')
    )

    select
        source,
        table_id,
        table_name,
        checkpoint_id,
        if(is_admitted, now.snapshot_lsn, range_lsn) as lower_lsn,
        upper_lsn,
        now.snapshot_id,
        now.snapshot_lsn,
        keyless,
        is_admitted,
        is_ended
    from classified
{%- endmacro %}
