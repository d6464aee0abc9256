{#-
  {source: persisted position} of the sources that have moved past their last checkpoint, by the relations `raw`
  {positions, sources, tables}. A writer stands at the highest position of its newest incarnation (the one that started
  last); its source at the lowest of the writers that count (`raw.sources`; where that names none, all). Of those none is
  below the last checkpoint, but for one that has just begun: older rows are passed over unread, and a source waits for a
  writer that has no newer one. A source whose `checkpoint_scope` is `source` stays where it is until the snapshots of all
  its tables can be admitted.
-#}
{% macro moved_sources(raw, marks) -%}
    {%- set moved = {} -%}
    {%- if execute -%}
        {%- for row in run_query(tidemark._persisted_positions(raw, marks)) -%}
            {%- if row['position'] | int > marks.get(row['source'], {}).get('position', -1) -%}
                {%- do moved.update({row['source']: row['position'] | int}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(moved) }}
{%- endmacro %}

{% macro _persisted_positions(raw, marks) -%}
    with writers as (
        select
            source,
            writer,
            max(struct(start_position, position)).position as position
        from {{ raw.positions }}
        where true
            {%- for source, mark in marks.items() %}
            and (source <> '{{ source }}' or position >= {{ mark.position }})
            {%- endfor %}
        group by source, writer
    ),

    persisted as (
        select
            writers.source,
            min(writers.position) as position
        from writers
        left join {{ raw.sources }} as counting on writers.source = counting.source
        where counting.writers is null or array_contains(counting.writers, writers.writer)
        group by writers.source
        having count(*) = coalesce(max(array_size(counting.writers)), count(*))
    )

    select
        persisted.source,
        persisted.position
    from persisted
    left anti join (
        select
            tables.source,
            tables.state,
            tables.done_lsn
        from {{ raw.tables }} as tables
        left semi join {{ raw.sources }} as scoped on tables.source = scoped.source and scoped.checkpoint_scope = 'source'
    ) as tables
        on
            persisted.source = tables.source
            and (tables.state in ('queued', 'running') or (tables.state = 'done' and tables.done_lsn >= persisted.position))
{%- endmacro %}
