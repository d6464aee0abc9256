{#-
  The kept records, with the values that updates lack filled in, where an update that lacks one also changes its row's
  key. A row's records are cut into segments, each beginning with a record that is complete by itself, or that takes over
  another key's row (`prev_row_key`); within a segment, later values lie over earlier ones. A segment whose first record
  lacks values lies over its parent: the last segment of the key that it took over, or else the row as `row_state` has
  it. Keys may be taken over several times in one run (a to b to c, or two rows that swap), hence the recursion.
-#}
{% macro followed_records(row_state, batch) -%}
    {%- set links = batch.links or 'linked' -%}
    with recursive
    {%- if not batch.links %}
    {{ tidemark.linked_segments() }},

    {%- endif %}
    chains as (
        select
            linked.source,
            linked.table_id,
            linked.row_key,
            linked.place,
            linked.columns,
            linked.partial,
            linked.base_key,
            linked.parent_segment
        from {{ links }} as linked
        where linked.segment = linked.last_segment

        union all

        select
            chains.source,
            chains.table_id,
            chains.row_key,
            chains.place,
            {{ tidemark.laid_over('linked.columns', 'chains.columns') }} as columns,
            linked.partial,
            linked.base_key,
            linked.parent_segment
        from chains
        inner join {{ links }} as linked
            on
                chains.source = linked.source
                and chains.table_id = linked.table_id
                and chains.base_key = linked.row_key
                and chains.parent_segment = linked.segment
                and chains.partial
    ),

    filled as (
        select
            chains.source,
            chains.table_id,
            chains.row_key,
            {% if tidemark.is_built(row_state) -%}
            if(
                chains.partial,
                {{ tidemark.laid_over('base.columns', 'chains.columns') }},
                chains.columns
            ) as columns
            {%- else -%}
            chains.columns
            {%- endif %}
        from chains
        {%- if tidemark.is_built(row_state) %}
        left join {{ row_state }} as base
            on
                chains.source = base.source
                and chains.table_id = base.table_id
                and chains.base_key = base.row_key
                and chains.partial
        {%- endif %}
        where not (chains.partial and chains.parent_segment is not null)
    )

    select
        kept.* except (columns),
        coalesce(filled.columns, kept.columns) as columns
    from kept
    left join filled using (source, table_id, row_key)
{%- endmacro %}
