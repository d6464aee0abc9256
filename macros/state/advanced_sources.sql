{#-
  {source: persisted position} of the sources that have advanced past their last checkpoint, by the relations `raw`
  {positions, sources, tables}. A writer's position is the highest of its newest epoch (the one that started last). A
  source's position is the lowest of its active writers (`raw.sources`; if that lists none, all). No active writer is
  below the last checkpoint, except one that has just started: older rows are skipped, and a source waits for a writer
  without a newer one. A source with `snapshot_hold: source` does not advance until the snapshots of all its tables
  can be admitted; this is only queried if such a source has advanced.
-#}
{% macro advanced_sources(raw, watermarks) -%}
    {%- set advanced = {} -%}
    {%- set held_by_source = {} -%}
    {%- if execute and not tidemark.only_renders() -%}
        {%- for row in run_query(tidemark._persisted_positions(raw, watermarks)) -%}
            {%- if row['source'] not in watermarks or row['position'] | int > watermarks[row['source']].position -%}
                {%- do advanced.update({row['source']: row['position'] | int}) -%}
                {%- if row['snapshot_hold'] == 'source' -%}{%- do held_by_source.update({row['source']: row['position'] | int}) -%}{%- endif -%}
            {%- endif -%}
        {%- endfor -%}
        {%- for row in (run_query(tidemark._held_sources(raw, held_by_source)) if held_by_source else []) -%}
            {%- do advanced.pop(row['source']) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(advanced) }}
{%- endmacro %}

{#- There are few positions: in one partition they are grouped without a shuffle. -#}
{% macro _persisted_positions(raw, watermarks) -%}
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
            {%- for source, watermark in watermarks.items() %}
            and (source <> '{{ source }}' or position >= {{ watermark.position }})
            {%- endfor %}
        group by source, writer
    )

    select
        writers.source,
        max(active.snapshot_hold) as snapshot_hold,
        min(writers.position) as position
    from writers
    left join {{ raw.sources }} as active on writers.source = active.source
    where active.writers is null or array_contains(active.writers, writers.writer)
    group by writers.source
    having count(*) = coalesce(max(array_size(active.writers)), count(*))
{%- endmacro %}

{#- The sources with a table whose snapshot could not be admitted at these positions, or whose end is after them. -#}
{% macro _held_sources(raw, positions) -%}
    select distinct source
    from {{ raw.tables }}
    where false
        {%- for source, position in positions.items() %}
        or (
            source = '{{ source }}'
            and (
                state in ('queued', 'running')
                or (state = 'done' and complete_lsn >= {{ position }})
                or (state = 'ended' and ended_lsn >= {{ position }})
            )
        )
        {%- endfor %}
{%- endmacro %}
