{#-
  A run's segments as a temporary view in memory, each laid over those of the run that are below it. In every step each
  segment is laid over its parent and takes over the parent's parent, so that a chain of n segments takes log2(n) steps.
-#}
{% macro cache_links(kept) -%}
    {%- do tidemark._drop_views_of_links() -%}
    {%- do tidemark.run_memory().update({'links': true}) -%}
    {{ return(tidemark._laid_links(0, 'with ' ~ kept ~ ', ' ~ tidemark.linked_segments() ~ ' select * from linked')) }}
{%- endmacro %}

{#- A view reads the one of the step before by its name, so that has to be there until the end. -#}
{% macro _laid_links(step, query) -%}
    {%- set links = 'tidemark_links_%02d' % step -%}
    {%- do run_query('cache table ' ~ links ~ ' as ' ~ query) -%}
    {%- set lacking = run_query('select count_if(partial and parent_segment is not null) from ' ~ links)[0][0] -%}
    {{ return(tidemark._laid_links(step + 1, tidemark._over_parents(links)) if lacking else links) }}
{%- endmacro %}

{#- Parents and children meet in one window, as a join of the view with itself would double the plan in each step. -#}
{% macro _over_parents(links) -%}
    select
        child.* except (columns, partial, base_key, parent_segment),
        {{ tidemark.laid_over('parent.columns', 'child.columns') }} as columns,
        coalesce(parent.partial, child.partial) as partial,
        coalesce(parent.base_key, child.base_key) as base_key,
        if(parent is null, child.parent_segment, parent.parent_segment) as parent_segment
    from (
        select
            child,
            any_value(parent, true) over (partition by source, table_id, row_key, segment) as parent
        from (
            select
                source,
                table_id,
                if(is_child, base_key, row_key) as row_key,
                if(is_child, if(partial, parent_segment, null), segment) as segment,
                if(is_child, struct(links.*), null) as child,
                if(is_child, null, struct(columns, partial, base_key, parent_segment)) as parent
            from {{ links }} as links
            lateral view explode(array(true, false)) as is_child
        )
    )
    where child is not null
{%- endmacro %}

{#- Frees what `cache_links` holds. -#}
{% macro drop_links() -%}
    {%- if tidemark.run_memory().pop('links', false) -%}
        {%- do tidemark._drop_views_of_links() -%}
    {%- endif -%}
{%- endmacro %}

{#- Those of a run that failed too, the last step first: Spark finds what it holds for a view by its whole plan. -#}
{% macro _drop_views_of_links() -%}
    {%- for view in run_query("show views in " ~ target.schema ~ " like 'tidemark_links_*'") | sort(attribute='viewName', reverse=true) -%}
        {%- do run_query('drop view ' ~ view.viewName) -%}
    {%- endfor -%}
{%- endmacro %}
