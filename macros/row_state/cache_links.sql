{#-
  A run's linked segments as a view in memory, and of each the root: what it lies on, through as many parents as there
  are in the run. Each step of the search is a view of its own, in which a segment's root becomes the root of that one, so
  that a chain of n segments takes log2(n) steps; their values stay where they are.
-#}
{% macro cache_links(kept) -%}
    {%- do tidemark._drop_views_of_links() -%}
    {%- do tidemark.run_memory().update({'links': true}) -%}
    {%- set links = 'tidemark_links' -%}
    {%- do run_query('cache table ' ~ links ~ ' as with ' ~ kept ~ ', ' ~ tidemark.linked_segments() ~ ' select * from linked') -%}
    {{ return({'segments': links, 'roots': tidemark._cache_roots(0, tidemark._first_roots(links))}) }}
{%- endmacro %}

{#- A view reads the one of the step before by its name, so that has to be there until the end. -#}
{% macro _cache_roots(step, query) -%}
    {%- set roots = 'tidemark_links_%02d' % step -%}
    {%- do run_query('cache table ' ~ roots ~ ' as ' ~ query) -%}
    {%- set moved = run_query('select count_if(is_moved) from ' ~ roots)[0][0] -%}
    {{ return(tidemark._cache_roots(step + 1, tidemark._next_roots(roots)) if moved else roots) }}
{%- endmacro %}

{% macro _first_roots(links) -%}
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
        from {{ links }}
    )
{%- endmacro %}

{#- Segments and their roots meet in one window, as a join of the view with itself would double the plan in each step. -#}
{% macro _next_roots(roots) -%}
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

{#- Frees what `cache_links` holds. -#}
{% macro drop_links() -%}
    {%- if tidemark.run_memory().pop('links', false) -%}
        {%- do tidemark._drop_views_of_links() -%}
    {%- endif -%}
{%- endmacro %}

{#- Those of a run that failed too, the last step first: Spark finds what it holds for a view by its whole plan. -#}
{% macro _drop_views_of_links() -%}
    {%- for view in run_query("show views in " ~ target.schema ~ " like 'tidemark_links*'") | sort(attribute='viewName', reverse=true) -%}
        {%- do run_query('drop view ' ~ view.viewName) -%}
    {%- endfor -%}
{%- endmacro %}
