{#-
  {source: persisted position} of the sources that have moved past their last checkpoint. A writer stands at the highest
  position of its newest incarnation (the one that started last); its source at the lowest of its writers. No
  writer's newest position is below the last checkpoint, so older rows are passed over unread.
-#}
{% macro moved_sources(stream_positions, marks) -%}
    {%- set moved = {} -%}
    {%- if execute -%}
        {%- for row in run_query(tidemark._persisted_positions(stream_positions, marks)) -%}
            {%- if row['position'] | int > marks.get(row['source'], {}).get('position', -1) -%}
                {%- do moved.update({row['source']: row['position'] | int}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(moved) }}
{%- endmacro %}

{% macro _persisted_positions(stream_positions, marks) -%}
    with writers as (
        select
            source,
            writer,
            max(struct(start_position, position)).position as position
        from {{ stream_positions }}
        where true
            {%- for source, mark in marks.items() %}
            and (source <> '{{ source }}' or position >= {{ mark.position }})
            {%- endfor %}
        group by source, writer
    )

    select
        source,
        min(position) as position
    from writers
    group by source
{%- endmacro %}
