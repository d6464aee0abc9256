{#-
  The kept records, with the values that updates lack filled in, where an update that lacks one also changes its row's
  key. A row's records are cut into segments, each beginning with a record that is complete by itself, or that takes over
  another key's row (`prev_row_key`); within a segment, later values lie over earlier ones. A segment whose first record
  lacks values lies over its parent: the last segment of the key that it took over, or else the row as `row_state` has
  it. Keys may be taken over several times in one run (a to b to c, or two rows that swap): `links` are the segments
  laid over all that the run has below them.
-#}
{% macro followed_records(row_state, links) -%}
    with filled as (
        select
            links.source,
            links.table_id,
            links.row_key,
            {% if tidemark.is_built(row_state) -%}
            if(links.partial, {{ tidemark.laid_over('base.columns', 'links.columns') }}, links.columns) as columns
        from {{ links }} as links
        left join {{ row_state }} as base
            on
                links.source = base.source
                and links.table_id = base.table_id
                and links.base_key = base.row_key
                and links.partial
            {%- else -%}
            links.columns
        from {{ links }} as links
            {%- endif %}
        where links.segment = links.last_segment
    )

    select
        kept.* except (columns),
        coalesce(filled.columns, kept.columns) as columns
    from kept
    left join filled using (source, table_id, row_key)
{%- endmacro %}
