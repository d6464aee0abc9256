{#-
  The state of a definition's inputs: {waiting: [names of the inputs that are not ready], changed: whether a row of
  them changed since the watermark}. An input is ready when the newest snapshot of each of its generations that has
  not ended is admitted.
-#}
{% macro input_state(definition, own_watermarks) -%}
    {%- set states = tidemark.input_states() -%}
    {%- set waiting = [] -%}
    {%- set changed = [] -%}
    {%- for input in definition.inputs -%}
        {%- set name = input.source ~ '.' ~ input.table -%}
        {%- set state = states.get(name, {'waiting': true, 'changed_at': 0}) -%}
        {%- if state.waiting -%}{%- do waiting.append(name) -%}{%- endif -%}
        {%- if state.changed_at > own_watermarks.get(input.source, {}).get('checkpoint_id', 0) -%}{%- do changed.append(name) -%}{%- endif -%}
    {%- endfor -%}
    {{ return({'waiting': waiting, 'changed': changed | length > 0}) }}
{%- endmacro %}

{#- The state of all inputs, read once per run: {source.table: {waiting, changed_at}}. The model `row_state` reads it
    after its changes, before the definitions start. -#}
{% macro input_states() -%}
    {%- set cache = tidemark.invocation_cache() -%}
    {%- if 'input_states' not in cache -%}
        {%- do cache.update({'input_states': tidemark._read_input_states(tidemark.model_positions('row_state'))}) -%}
    {%- endif -%}
    {{ return(cache.input_states) }}
{%- endmacro %}

{% macro _read_input_states(positions) -%}
    {%- set states = {} -%}
    {%- if execute and positions and tidemark.relation_exists(tidemark.get_core_relation('row_state')) -%}
        {%- for row in run_query(tidemark._input_states_query(positions)) -%}
            {%- do states.update({row['name']: {'waiting': row['is_waiting'], 'changed_at': row['changed_at'] | int}}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(states) }}
{%- endmacro %}

{% macro _input_states_query(positions) -%}
    with decided as (
        select
            source,
            table_name,
            table_id,
            max_by(status, checkpoint_id) as status
        from {{ tidemark.get_core_relation('table_status') }}
        where
            false
            {%- for source, point in positions.items() %}
            or (source = '{{ source }}' and {{ tidemark.uncompiled_literal('checkpoint_id') }} <= {{ tidemark.uncompiled_literal(point.checkpoint_id ~ 'L') }})
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
        from {{ tidemark.get_core_relation('row_state') }}
        where
            false
            {%- for source, point in positions.items() %}
            {%- set lowest = tidemark._lowest_definition_watermark(source) %}
            {%- if lowest is not none %}
            or (source = '{{ source }}' and {{ tidemark.in_checkpoints('checkpoint_id', lowest, point.checkpoint_id) }})
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

{#- The checkpoint of a source that every published definition is past: no definition needs older changes. None if no
    published definition reads the source. -#}
{% macro _lowest_definition_watermark(source) -%}
    {%- set lowest = [] -%}
    {%- for node in graph.nodes.values() if tidemark.is_definition(node) -%}
        {%- set watermark = tidemark.watermarks().get(node.name, {}).get(source) -%}
        {%- if watermark -%}{%- do lowest.append(watermark.checkpoint_id) -%}{%- endif -%}
    {%- endfor -%}
    {{ return(lowest | min if lowest else none) }}
{%- endmacro %}
