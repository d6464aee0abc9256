{#-
  What a run's records are like, so that the model renders only the steps that they need: {has_work, admitted, sweeps,
  keyless, truncated, partial, moved, predicate}. `partial`: an update lacks a value (unchanged TOAST); `moved`: one of
  those has changed its key. `predicate` holds literals, by which Iceberg passes over files.
-#}
{% macro row_batch(events, scope, ranges) -%}
    {%- set live = scope | rejectattr('is_ended') | list -%}
    {%- set admitted = scope | selectattr('is_admitted') | list | length > 0 -%}
    {%- set predicate = tidemark.in_ranges(tidemark._lowest_ranges(live), 'events') if admitted else tidemark._of_ranges(ranges) -%}
    {%- set found = {} -%}
    {%- if execute and live -%}
        {%- set probe -%}
            select
                count(*) as records,
                coalesce(bool_or(op = 'truncate'), false) as truncated,
                coalesce(bool_or(partial), false) as partial,
                coalesce(bool_or(partial and prev_row_key is not null), false) as moved
            from {{ events }} as events
            where {{ predicate }}
        {%- endset -%}
        {%- set found = run_query(probe)[0] -%}
    {%- endif -%}
    {%- set ended = scope | selectattr('is_ended') | list | length > 0 -%}
    {{ return({
        'has_work': admitted or ended or (found and found['records'] | int > 0),
        'admitted': admitted,
        'sweeps': admitted or ended or (found and found['truncated']),
        'keyless': scope | selectattr('keyless') | list | length > 0,
        'truncated': found and found['truncated'],
        'partial': found and found['partial'],
        'moved': found and found['moved'],
        'predicate': predicate,
    }) }}
{%- endmacro %}

{#- The events of which ranges are, and maybe later ones, as a predicate on the checkpoints at which `events` took them in:
    where it is ahead, those of a range may be of a later one. -#}
{% macro _of_ranges(ranges) -%}
    {%- set events = tidemark.standing('events') -%}
    (
        false
        {%- for range in ranges %}
        or (
            events.source = '{{ range.source }}'
            and {{ tidemark.of_checkpoints('events.checkpoint_id', range.since, events[range.source].checkpoint_id) }}
        )
        {%- endfor %}
    )
{%- endmacro %}

{#- For each source of a scope the one range that holds all of its tables' records. -#}
{% macro _lowest_ranges(scope) -%}
    {%- set lowest = {} -%}
    {%- for t in scope -%}
        {%- set known = lowest.get(t.source, t) -%}
        {%- do lowest.update({t.source: {
            'source': t.source, 'lower': [known.lower, t.lower] | min, 'upper': t.upper
        }}) -%}
    {%- endfor -%}
    {{ return(lowest.values() | list) }}
{%- endmacro %}
