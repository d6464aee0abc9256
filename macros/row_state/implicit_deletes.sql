{#-
  Tombstones of this run for rows that are deleted without a record of their own: all rows of a generation that ended,
  all rows that an admitted snapshot does not contain, all rows that a truncate deleted. Rows with records in this run
  are in `latest`.
-#}
{% macro implicit_deletes(row_state, profile) -%}
    select
        present.source,
        present.table_id,
        present.table_name,
        present.row_key,
        present.columns,
        0 as multiplicity,
        present.partition_id,
        coalesce(
            {% if profile.truncated %}last_truncate.place,{% endif %}
            {{ tidemark.log_order('if(scope.is_ended, scope.upper_lsn, scope.snapshot_lsn)', '-1L', '-1') }}
        ) as place,
        scope.checkpoint_id
    from {{ tidemark.rows_in_tables(row_state, profile.sweeps) }} as present
    inner join scope on present.source = scope.source and present.table_id = scope.table_id
    {%- if profile.truncated %}
    left join (
        select source, table_id, max(place) as place from truncates group by source, table_id
    ) as last_truncate
        on present.source = last_truncate.source and present.table_id = last_truncate.table_id
    {%- endif %}
    left anti join latest
        on
            present.source = latest.source
            and present.table_id = latest.table_id
            and present.row_key = latest.row_key
    where
        not present.deleted
        and (
            scope.is_admitted or scope.is_ended
            {%- if profile.truncated %}
            or exists (
                select 1
                from truncates
                where
                    truncates.source = present.source
                    and truncates.table_id = present.table_id
                    and coalesce(truncates.partition_id, present.partition_id) = present.partition_id
            )
            {%- endif %}
        )
{%- endmacro %}
