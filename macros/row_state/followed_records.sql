{#-
  The kept records, with the values that updates lack filled in, where an update that lacks one also changes its row's
  key. A row's records are cut into segments, each beginning with a record that is complete by itself, or that takes over
  another key's row (`old_row_key`); within a segment, later values lie over earlier ones. A segment whose first record
  lacks values lies over its parent: the last segment of the key that it took over, or else the row as `row_state` has
  it. Keys may be taken over several times in one run (a to b to c, or two rows that swap), so all segments of one root
  are laid over each other.
-#}
{% macro followed_records(row_state, batch, links) -%}
    with laid as (
        select
            links.source,
            links.table_id,
            max_by(links.row_key, links.place) as row_key,
            max_by(links.segment = links.last_segment, links.place) as is_last,
            min_by(links.base_key, links.place) as base_key,
            min_by(links.is_partial, links.place) as is_partial,
            {{ tidemark.overlaid() }} as columns
        from {{ links.segments }} as links
        inner join {{ links.roots }} as roots using (source, table_id, row_key, segment)
        group by links.source, links.table_id, roots.root_key, roots.root_segment
    ),

    filled as (
        select
            source,
            table_id,
            row_key,
            columns
        from (
            {{ tidemark.laid_over_rows(row_state, 'base_key', batch.is_partial, true) }}
        )
        where is_last
    )

    select
        kept.* except (columns),
        coalesce(filled.columns, kept.columns) as columns
    from kept
    left join filled using (source, table_id, row_key)
{%- endmacro %}
