{#-
  {source: persisted position} of the sources, by the relations `raw` {positions, sources, tables}, that have moved past their last checkpoint. A writer stands at the highest
  position of its newest incarnation (the one that started last); its source at the lowest of its writers. No
  writer's newest position is below the last checkpoint, so older rows are passed over unread. A source whose
  `checkpoint_scope` is `source` stays where it is until the snapshots of all its tables can be admitted.
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
            source,
            min(position) as position
        from writers
        group by source
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
