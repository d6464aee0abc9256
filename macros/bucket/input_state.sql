{#-
  How a definition's inputs are: {waiting: [names of those that are not ready], changed: whether a row of theirs changed
  since the mark}. An input is ready when every generation of it that has not ended has its newest snapshot admitted.
-#}
{% macro input_state(definition, mine) -%}
    {%- set states = tidemark.input_states() -%}
    {%- set waiting = [] -%}
    {%- set changed = [] -%}
    {%- for input in definition.inputs -%}
        {%- set name = input.source ~ '.' ~ input.table -%}
        {%- set state = states.get(name, {'waiting': true, 'changed_at': 0}) -%}
        {%- if state.waiting -%}{%- do waiting.append(name) -%}{%- endif -%}
        {%- if state.changed_at > mine.get(input.source, {}).get('checkpoint_id', 0) -%}{%- do changed.append(name) -%}{%- endif -%}
    {%- endfor -%}
    {{ return({'waiting': waiting, 'changed': changed | length > 0}) }}
{%- endmacro %}

{#- What all definitions ask of their inputs, asked once in a run: {source.table: {waiting, changed_at}}. The model `row_state` asks
    when it has brought something, before the definitions start. -#}
{% macro input_states() -%}
    {%- set memory = tidemark.run_memory() -%}
    {%- if 'input_states' not in memory -%}
        {%- do memory.update({'input_states': tidemark._read_input_states(tidemark.standing('row_state'))}) -%}
    {%- endif -%}
    {{ return(memory.input_states) }}
{%- endmacro %}

{% macro _read_input_states(standing) -%}
    {%- set found = {} -%}
    {%- if execute and standing and tidemark.is_built(tidemark.core_relation('row_state')) -%}
        {%- for row in run_query(tidemark._input_states_query(standing)) -%}
            {%- do found.update({row['name']: {'waiting': row['is_waiting'], 'changed_at': row['changed_at'] | int}}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(found) }}
{%- endmacro %}

{% macro _input_states_query(standing) -%}
    with decided as (
        select
            source,
            table_name,
            table_id,
            max_by(status, checkpoint_id) as status
        from {{ tidemark.core_relation('table_status') }}
        where
            false
            {%- for source, at in standing.items() %}
            or (source = '{{ source }}' and {{ tidemark.boxed('checkpoint_id') }} <= {{ tidemark.boxed(at.checkpoint_id ~ 'L') }})
            {%- endfor %}
        group by source, table_name, table_id
    ),

    readiness as (
        select
            source,
            table_name,
            bool_or(status = 'waiting') as is_waiting
        from decided
        group by source, table_name
    ),

    changes as (
        select
            source,
            table_name,
            max(checkpoint_id) as changed_at
        from {{ tidemark.core_relation('row_state') }}
        where
            false
            {%- for source, at in standing.items() %}
            {%- set lowest = tidemark._lowest_definition_mark(source) %}
            {%- if lowest is not none %}
            or (source = '{{ source }}' and {{ tidemark.of_checkpoints('checkpoint_id', lowest, at.checkpoint_id) }})
            {%- endif %}
            {%- endfor %}
        group by source, table_name
    )

    select
        concat(readiness.source, '.', readiness.table_name) as name,
        readiness.is_waiting,
        coalesce(changes.changed_at, 0) as changed_at
    from readiness
    left join changes on readiness.source = changes.source and readiness.table_name = changes.table_name
{%- endmacro %}

{#- The checkpoint of a source that every definition which is published has passed: older changes are news to none. None: no
    definition that is published reads the source. -#}
{% macro _lowest_definition_mark(source) -%}
    {%- set lowest = [] -%}
    {%- for node in graph.nodes.values() if tidemark.is_definition(node) -%}
        {%- set mark = tidemark.marks().get(node.name, {}).get(source) -%}
        {%- if mark -%}{%- do lowest.append(mark.checkpoint_id) -%}{%- endif -%}
    {%- endfor -%}
    {{ return(lowest | min if lowest else none) }}
{%- endmacro %}
