{#- A run's segments, each with its parent, as CTEs over `kept`. See `fill_across_key_changes`. -#}
{% macro key_change_chains() -%}
    incomplete as (
        {{ tidemark.incomplete_keys(true) }}
    ),

    numbered as (
        select
            kept.*,
            sum(int(not (is_partial and old_row_key is null))) over (
                partition by source, table_id, row_key order by place
            ) as segment,
            sum(int(not (is_partial and old_row_key is null))) over (partition by source, table_id, row_key) as last_segment
        from kept
        left semi join incomplete using (source, table_id, row_key)
    ),

    grouped as (
        select
            source,
            table_id,
            row_key,
            segment,
            max(last_segment) as last_segment,
            min(place) as first_place,
            max(place) as place,
            min_by(op, place) as op,
            min_by(old_row_key, place) as old_row_key,
            min_by(is_partial, place) as is_partial,
            {{ tidemark.fold_columns() }} as columns
        from numbered
        group by source, table_id, row_key, segment
    ),

    read_again as (
        select
            source,
            table_id,
            row_key,
            max(read_again_lsn) as read_lsn,
            max_by(columns, read_again_lsn) as columns
        from kept
        where read_again_lsn is not null
        group by source, table_id, row_key
    ),

    -- A row that took over its key and was then read again by it lacks no values.
    segments as (
        select
            grouped.* except (is_partial, columns, next_place),
            grouped.is_partial and read_again.columns is null as is_partial,
            if(
                grouped.is_partial and read_again.columns is not null,
                {{ tidemark.merge_maps('read_again.columns', 'grouped.columns') }},
                grouped.columns
            ) as columns
        from (
            select *, lead(first_place) over (partition by source, table_id, row_key order by segment) as next_place
            from grouped
        ) as grouped
        left join read_again
            on
                grouped.source = read_again.source
                and grouped.table_id = read_again.table_id
                and grouped.row_key = read_again.row_key
                and grouped.old_row_key is not null
                and grouped.first_place.commit_lsn < read_again.read_lsn
                and coalesce(grouped.next_place.commit_lsn >= read_again.read_lsn, true)
    ),

    -- A segment's parent is the last earlier segment of its key. One window finds it: a join by "earlier" would pair
    -- all segments with all.
    linked as (
        select
            child.*,
            coalesce(child.old_row_key, child.row_key) as base_key,
            if(child.old_row_key is null, null, last_segment_before) as parent_segment
        from (
            select
                child,
                max(segment) over (partition by source, table_id, row_key order by place) as last_segment_before
            from (
                select
                    source,
                    table_id,
                    row_key,
                    place,
                    if(op = 'delete', null, segment) as segment,
                    null as child
                from segments
                union all
                select
                    source,
                    table_id,
                    coalesce(old_row_key, row_key) as row_key,
                    first_place as place,
                    null as segment,
                    struct(segments.*) as child
                from segments
            )
        )
        where child is not null
    )
{%- endmacro %}
