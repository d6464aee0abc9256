{#-
  The kept records, with the values that updates lack (unchanged TOAST) filled in, where no such update changes its row's
  key: of each row the records since the last one that is complete by itself, laid over each other; and where there is
  none, over the row as `row_state` has it. One record for each row.
-#}
{% macro filled_records(row_state, batch) -%}
    with numbered as (
        select
            *,
            sum(int(not is_partial)) over (partition by source, table_id, row_key order by place) as segment,
            sum(int(not is_partial)) over (partition by source, table_id, row_key) as last_segment,
            sum(multiplicity) over (partition by source, table_id, row_key) as all_copies
        from kept
    ),

    laid as (
        select
            source,
            table_id,
            row_key,
            max(place) as place,
            max_by(struct(table_name, op, partition_id), place) as last,
            min_by(is_partial, place) as is_partial,
            max(all_copies) as multiplicity,
            {{ tidemark.overlaid() }} as columns
        from numbered
        where segment = last_segment
        group by source, table_id, row_key
    )

    select
        * except (last),
        last.table_name,
        last.op,
        last.partition_id
    from (
        {{ tidemark.laid_over_rows(row_state, 'row_key', batch.is_partial, false) }}
    )
{%- endmacro %}
