{#-
  {source: persisted position} of the sources that have moved past their last checkpoint, by the relations `raw`
  {positions, sources, tables}. A writer stands at the highest position of its newest incarnation (the one that started
  last); its source at the lowest of the writers that count (`raw.sources`; where that names none, all). Of those none is
  below the last checkpoint, but for one that has just begun: older rows are passed over unread, and a source waits for a
  writer that has no newer one. A source whose `snapshot_hold` is `source` stays where it is until the snapshots of all
  its tables can be admitted; those are only asked for where such a source has moved.
-#}
{% macro moved_sources(raw, marks) -%}
    {%- set moved = {} -%}
    {%- set whole = {} -%}
    {%- if execute -%}
        {%- for row in run_query(tidemark._persisted_positions(raw, marks)) -%}
            {%- if row['position'] | int > marks.get(row['source'], {}).get('position', -1) -%}
                {%- do moved.update({row['source']: row['position'] | int}) -%}
                {%- if row['snapshot_hold'] == 'source' -%}{%- do whole.update({row['source']: row['position'] | int}) -%}{%- endif -%}
            {%- endif -%}
        {%- endfor -%}
        {%- for row in (run_query(tidemark._held_up(raw, whole)) if whole else []) -%}
            {%- do moved.pop(row['source']) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(moved) }}
{%- endmacro %}

{#- The positions are few: in one partition they are grouped without a shuffle. -#}
{% macro _persisted_positions(raw, marks) -%}
    with positions as (
        select /*+ coalesce(1) */ * from {{ raw.positions }}
    ),

    writers as (
        select
            source,
            writer,
            max(struct(start_position, position)).position as position
        from positions
        where true
            {%- for source, mark in marks.items() %}
            and (source <> '{{ source }}' or position >= {{ mark.position }})
            {%- endfor %}
        group by source, writer
    )

    select
        writers.source,
        max(counting.snapshot_hold) as snapshot_hold,
        min(writers.position) as position
    from writers
    left join {{ raw.sources }} as counting on writers.source = counting.source
    where counting.writers is null or array_contains(counting.writers, writers.writer)
    group by writers.source
    having count(*) = coalesce(max(array_size(counting.writers)), count(*))
{%- endmacro %}

{#- Of the sources at `positions`, those with a snapshot that could not be admitted there. -#}
{% macro _held_up(raw, positions) -%}
    select distinct source
    from {{ raw.tables }}
    where false
        {%- for source, position in positions.items() %}
        or (source = '{{ source }}' and (state in ('queued', 'running') or (state = 'done' and complete_lsn >= {{ position }})))
        {%- endfor %}
{%- endmacro %}
