{#-
  The kept records, with the values that updates lack filled in, where an update that lacks one also changes its row's
  key. A row's records are divided into segments. A segment begins with a record that is complete, or that takes over
  another key's row (`old_row_key`); within a segment, later values replace earlier ones. A segment whose first record
  lacks values is based on its parent: the last segment of the key that it took over, or else the row in `row_state`.
  Keys may be taken over several times in one run (a to b to c, or two rows that swap), so all segments of one root
  are merged in order.
-#}
{% macro fill_across_key_changes(row_state, profile, chains) -%}
    with merged as (
        select
            chains.source,
            chains.table_id,
            max_by(chains.row_key, chains.place) as row_key,
            max_by(chains.segment = chains.last_segment, chains.place) as is_last,
            min_by(chains.base_key, chains.place) as base_key,
            min_by(chains.is_partial, chains.place) as is_partial,
            {{ tidemark.fold_columns() }} as columns
        from {{ chains.segments }} as chains
        inner join {{ chains.roots }} as roots using (source, table_id, row_key, segment)
        group by chains.source, chains.table_id, roots.root_key, roots.root_segment
    ),

    filled as (
        select
            source,
            table_id,
            row_key,
            columns
        from (
            {{ tidemark.fill_from_base(row_state, 'base_key', profile.is_partial, true) }}
        )
        where is_last
    )

    select
        kept.* except (columns),
        coalesce(filled.columns, kept.columns) as columns
    from kept
    left join filled using (source, table_id, row_key)
{%- endmacro %}
