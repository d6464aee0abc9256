{#- A run's segments, each with its parent, as named queries upon `kept`. See `followed_records`. -#}
{% macro linked_segments() -%}
    touched as (
        select source, table_id, row_key from kept where partial
        union
        select source, table_id, prev_row_key from kept where partial and prev_row_key is not null
    ),

    numbered as (
        select
            kept.*,
            sum(int(not (partial and prev_row_key is null))) over (
                partition by source, table_id, row_key order by place
            ) as segment,
            sum(int(not (partial and prev_row_key is null))) over (partition by source, table_id, row_key) as last_segment
        from kept
        left semi join touched using (source, table_id, row_key)
    ),

    cut as (
        select
            source,
            table_id,
            row_key,
            segment,
            max(last_segment) as last_segment,
            min(place) as first_place,
            max(place) as place,
            min_by(op, place) as op,
            min_by(prev_row_key, place) as prev_row_key,
            min_by(partial, place) as partial,
            {{ tidemark.overlaid() }} as columns
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

    -- A row that took over its key and was then read by it lacks nothing.
    segments as (
        select
            cut.* except (partial, columns, next_place),
            cut.partial and read_again.columns is null as partial,
            if(
                cut.partial and read_again.columns is not null,
                {{ tidemark.laid_over('read_again.columns', 'cut.columns') }},
                cut.columns
            ) as columns
        from (
            select *, lead(first_place) over (partition by source, table_id, row_key order by segment) as next_place
            from cut
        ) as cut
        left join read_again
            on
                cut.source = read_again.source
                and cut.table_id = read_again.table_id
                and cut.row_key = read_again.row_key
                and cut.prev_row_key is not null
                and cut.first_place.commit_lsn < read_again.read_lsn
                and coalesce(cut.next_place.commit_lsn >= read_again.read_lsn, true)
    ),

    linked as (
        select
            segments.*,
            coalesce(segments.prev_row_key, segments.row_key) as base_key,
            (
                select max(parents.segment)
                from segments as parents
                where
                    parents.source = segments.source
                    and parents.table_id = segments.table_id
                    and parents.row_key = segments.prev_row_key
                    and parents.op <> 'delete'
                    and parents.place < segments.first_place
            ) as parent_segment
        from segments
    )
{%- endmacro %}

{#- The linked segments as a temporary view in memory: a recursive query asks for them in every step. One that a killed run left is
    replaced. -#}
{% macro cache_links(kept) -%}
    {%- do run_query('drop view if exists tidemark_links') -%}
    {%- do tidemark.run_memory().update({'links': true}) -%}
    {%- do run_query('cache table tidemark_links as with ' ~ kept ~ ', ' ~ tidemark.linked_segments() ~ ' select * from linked') -%}
    {{ return('tidemark_links') }}
{%- endmacro %}

{#- Frees what `cache_links` holds. -#}
{% macro drop_links() -%}
    {%- if tidemark.run_memory().pop('links', false) -%}
        {%- do run_query('drop view if exists tidemark_links') -%}
    {%- endif -%}
{%- endmacro %}

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
