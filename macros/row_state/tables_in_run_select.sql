{#- The tables in a run as a select, for joins. -#}
{% macro tables_in_run_select(scope) -%}
    select *
    from
        {%- if scope %}
        values
            {%- for t in scope %}
            (
                '{{ t.source }}', '{{ t.table_id }}', {{ t.checkpoint_id }}L, {{ t.lower }}L, {{ t.upper }}L,
                '{{ t.snapshot_id }}', {{ t.snapshot_lsn }}L, {{ t.keyless | lower }}, {{ t.is_admitted | lower }},
                {{ t.is_ended | lower }}
            ){{ ',' if not loop.last }}
            {%- endfor %}
        {%- else %}
        (select '', '', 0L, 0L, 0L, '', 0L, false, false, false where false)
        {%- endif %}
        as scope (
            source, table_id, checkpoint_id, lower_lsn, upper_lsn, snapshot_id, snapshot_lsn, keyless, is_admitted, is_ended
        )
{%- endmacro %}
