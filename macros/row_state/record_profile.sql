{#-
  Describes a run's records, so that the model renders only the steps that they need, and each step reads only the
  tables that it needs: {predicate, tables, admitted, sweeps, keyless, truncated, is_partial, moved}. `predicate`
  contains literals, by which Iceberg skips files; the others are lists of tables, entries of the scope. `tables`: all
  tables with changes in the run. `sweeps`: rows may be deleted without a record of their own. `keyless`: equal rows
  are counted, starting from `row_state`. `is_partial`: an update lacks a value (unchanged TOAST). `moved`: such an
  update has changed its row's key.
-#}
{% macro record_profile(events, scope, ranges) -%}
    {%- set live = scope | rejectattr('is_ended') | list -%}
    {%- set admitted = scope | selectattr('is_admitted') | list -%}
    {%- set ended = scope | selectattr('is_ended') | list -%}
    {%- set predicate = tidemark.in_ranges(tidemark._lowest_ranges(live), 'events') if admitted else tidemark._in_checkpoints_of_ranges(ranges) -%}
    {%- set tables_by_flag = {'records': [], 'truncated': [], 'is_partial': [], 'moved': []} -%}
    {%- if execute and live -%}
        {%- set tables = {} -%}
        {%- for t in live -%}{%- do tables.update({(t.source, t.table_id): t}) -%}{%- endfor -%}
        {%- for row in run_query(tidemark._records_by_table(events, scope, predicate)) -%}
            {%- for flag, flagged_tables in tables_by_flag.items() if row[flag] -%}
                {%- do flagged_tables.append(tables[row['source'], row['table_id']]) -%}
            {%- endfor -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set ended_or_admitted = ended + admitted -%}
    {%- set tables = ended_or_admitted + tables_by_flag.records | reject('in', ended_or_admitted) | list -%}
    {%- if tables -%}{%- do tidemark.run().set_changed_tables(tables) -%}{%- endif -%}
    {{ return({
        'predicate': predicate,
        'tables': tables,
        'admitted': admitted,
        'sweeps': ended_or_admitted + tables_by_flag.truncated | reject('in', ended_or_admitted) | list,
        'keyless': tables_by_flag.records | selectattr('keyless') | rejectattr('is_admitted') | list,
        'truncated': tables_by_flag.truncated,
        'is_partial': tables_by_flag.is_partial,
        'moved': tables_by_flag.moved,
    }) }}
{%- endmacro %}

{#- For each table of a scope with records: {source, table_id, records, truncated, is_partial, moved}. -#}
{% macro _records_by_table(events, scope, predicate) -%}
    with scope as (
        {{ tidemark.tables_in_run_select(scope) }}
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

{#- The events of ranges, and possibly later ones, as a predicate on the checkpoints at which `events` received them:
    where `events` is ahead, the events of a range may have a later checkpoint. -#}
{% macro _in_checkpoints_of_ranges(ranges) -%}
    {%- set events_positions = tidemark.run().positions('events') if ranges else {} -%}
    (
        false
        {%- for range in ranges %}
        or (
            events.source = '{{ range.source }}'
            and {{ tidemark.in_checkpoints('events.checkpoint_id', range.since, events_positions[range.source].checkpoint_id) }}
        )
        {%- endfor %}
    )
{%- endmacro %}

{#- For each source of a scope the one range that covers the records of all of its tables. -#}
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
