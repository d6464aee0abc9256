{#- The first steps of `row_state`, as CTEs: the run's scope, its records, its truncates, and the records that remain. -#}
{% macro kept_records(events, snapshots, scope, profile) -%}
    scope as (
        {{ tidemark.tables_in_run_select(scope) }}
    ),

    records as (
        {{ tidemark.records_in_scope(events, snapshots, profile) }}
    ),

    {%- if profile.truncated %}

    truncates as (
        {{ tidemark.truncates_in_scope(events, profile) }}
    ),
    {%- endif %}

    -- A truncate deletes all records that are ordered before it, also snapshot rows that arrive later.
    kept as (
        select records.*
        from records
        {%- if profile.truncated %}
        left anti join truncates
            on
                records.source = truncates.source
                and records.table_id = truncates.table_id
                and records.partition_id = coalesce(truncates.partition_id, records.partition_id)
                and records.place < truncates.place
        {%- endif %}
    )
{%- endmacro %}
