{#-
  What a run's records are like, so that the model renders only the steps that they need, and reads only the tables that
  they are needed for: {predicate, tables, admitted, sweeps, keyless, truncated, is_partial, moved}. `predicate` holds literals,
  by which Iceberg passes over files; the others are lists of tables, entries of the scope. `tables`: all that the run
  brings something of; `sweeps`: rows of it may go that no record names; `keyless`: its equal rows are counted, from what
  `row_state` has; `is_partial`: an update lacks a value (unchanged TOAST); `moved`: one of those has changed its key.
-#}
{% macro row_batch(events, scope, ranges) -%}
    {%- set live = scope | rejectattr('is_ended') | list -%}
    {%- set admitted = scope | selectattr('is_admitted') | list -%}
    {%- set ended = scope | selectattr('is_ended') | list -%}
    {%- set predicate = tidemark.in_ranges(tidemark._lowest_ranges(live), 'events') if admitted else tidemark._of_ranges(ranges) -%}
    {%- set brought = {'records': [], 'truncated': [], 'is_partial': [], 'moved': []} -%}
    {%- if execute and live -%}
        {%- set tables = {} -%}
        {%- for t in live -%}{%- do tables.update({(t.source, t.table_id): t}) -%}{%- endfor -%}
        {%- for row in run_query(tidemark._records_by_table(events, scope, predicate)) -%}
            {%- for what, its in brought.items() if row[what] -%}
                {%- do its.append(tables[row['source'], row['table_id']]) -%}
            {%- endfor -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set named = ended + admitted -%}
    {%- set tables = named + brought.records | reject('in', named) | list -%}
    {{ return({
        'predicate': predicate,
        'tables': tables,
        'admitted': admitted,
        'sweeps': named + brought.truncated | reject('in', named) | list,
        'keyless': brought.records | selectattr('keyless') | rejectattr('is_admitted') | list,
        'truncated': brought.truncated,
        'is_partial': brought.is_partial,
        'moved': brought.moved,
    }) }}
{%- endmacro %}

{#- Of each table of a scope that has records: {source, table_id, records, truncated, is_partial, moved}. -#}
{% macro _records_by_table(events, scope, predicate) -%}
    with scope as (
        {{ tidemark.scope_select(scope) }}
    )

    select
        events.source,
        events.table_id,
        true as records,
        bool_or(events.op = 'truncate') as truncated,
        bool_or(events.is_partial) as is_partial,
        bool_or(events.is_partial and events.old_row_key is not null) as moved
    from {{ events }} as events
    inner join scope on {{ tidemark.is_in_scope('events') }}
    where {{ predicate }}
    group by events.source, events.table_id
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
