{#-
  The kept records, with the values that updates lack (unchanged TOAST) filled in, where no such update changes its
  row's key. For each row it merges the records since the last complete one; if there is none, it merges them over the
  row in `row_state`. One record for each row.
-#}
{% macro fill_toast_values(row_state, profile) -%}
    with numbered as (
        select
            *,
            sum(int(not is_partial)) over (partition by source, table_id, row_key order by place) as segment,
            sum(int(not is_partial)) over (partition by source, table_id, row_key) as last_segment,
            sum(multiplicity) over (partition by source, table_id, row_key) as total_multiplicity
        from kept
    ),

    merged as (
        select
            source,
            table_id,
            row_key,
            max(place) as place,
            max_by(struct(table_name, op, partition_id), place) as last,
            min_by(is_partial, place) as is_partial,
            max(total_multiplicity) as multiplicity,
            {{ tidemark.fold_columns() }} as columns
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
        {{ tidemark.fill_from_base(row_state, 'row_key', profile.is_partial, false) }}
    )
{%- endmacro %}
