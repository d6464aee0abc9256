{#-
  Caches a run's segments (see `fill_across_key_changes`) as a view in memory, and the root of each: the segment that
  it is based on, through all parents in the run. Each step of the search is a view in which a segment's root is
  replaced by the root of that root, so a chain of n segments takes log2(n) steps. The values of the segments are not
  copied.
-#}
{% macro cache_key_chains(kept) -%}
    {%- do tidemark._drop_left_chain_views() -%}
    {%- set chains = 'tidemark_links' -%}
    {%- do tidemark.run().add_scratch_view(chains) -%}
    {%- do run_query('cache table ' ~ chains ~ ' as with ' ~ kept ~ ', ' ~ tidemark.key_change_chains() ~ ' select * from linked') -%}
    {{ return({'segments': chains, 'roots': tidemark._cache_roots(0, tidemark._first_roots(chains))}) }}
{%- endmacro %}

{#- A view reads the view of the previous step by name, so that one has to exist until the end. -#}
{% macro _cache_roots(step, query) -%}
    {%- set roots = 'tidemark_links_%02d' % step -%}
    {%- do tidemark.run().add_scratch_view(roots) -%}
    {%- do run_query('cache table ' ~ roots ~ ' as ' ~ query) -%}
    {%- set moved = run_query('select count_if(is_moved) from ' ~ roots)[0][0] -%}
    {{ return(tidemark._cache_roots(step + 1, tidemark._advance_roots(roots)) if moved else roots) }}
{%- endmacro %}

{% macro _first_roots(chains) -%}
    select
        source,
        table_id,
        row_key,
        segment,
        if(is_moved, base_key, row_key) as root_key,
        if(is_moved, parent_segment, segment) as root_segment,
        is_moved
    from (
        select
            *,
            is_partial and parent_segment is not null as is_moved
        from {{ chains }}
    )
{%- endmacro %}

{#- Segments and their roots meet in one window: a join of the view with itself would double the plan in each step. -#}
{% macro _advance_roots(roots) -%}
    select
        upper.source,
        upper.table_id,
        upper.row_key,
        upper.segment,
        lower.root_key,
        lower.root_segment,
        lower.root_key <> upper.root_key or lower.root_segment <> upper.root_segment as is_moved
    from (
        select
            upper,
            any_value(lower, true) over (partition by source, table_id, row_key, segment) as lower
        from (
            select
                source,
                table_id,
                if(is_upper, root_key, row_key) as row_key,
                if(is_upper, root_segment, segment) as segment,
                if(is_upper, struct(roots.*), null) as upper,
                if(is_upper, null, struct(root_key, root_segment)) as lower
            from {{ roots }} as roots
            lateral view explode(array(true, false)) as is_upper
        )
    )
    where upper is not null
{%- endmacro %}

{#- Drops the views that a failed run of this process has left. -#}
{% macro _drop_left_chain_views() -%}
    {%- for view in run_query("show views in core like 'tidemark_links*'") | sort(attribute='viewName', reverse=true) -%}
        {%- do run_query('drop view ' ~ view.viewName) -%}
    {%- endfor -%}
{%- endmacro %}
