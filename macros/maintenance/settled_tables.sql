{#- The table_ids whose newest snapshot is admitted, or that have ended. -#}
{% macro settled_tables() -%}
    with decided as (
        select
            source,
            table_id,
            max_by(struct(status, snapshot_id), checkpoint_id) as now
        from core.table_status
        group by source, table_id
    )

    select registered.table_id
    from raw.source_tables as registered
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
{%- endmacro %}
