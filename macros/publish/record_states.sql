{#-
  Stores in `core.model_states` which models published nothing in this run, after all passed models are published:
  models that failed, or depend on a failure, and definitions that wait. Models that the run did not select keep their
  state. If no state has changed, nothing is written.
-#}
{% macro record_states(results, passed) -%}
    {%- set relation = tidemark.get_core_relation('model_states') -%}
    {%- if tidemark.relation_exists(relation) and not var('plan_only', false) -%}
        {%- set names = graph.nodes.values() | selectattr('resource_type', 'equalto', 'model') | map(attribute='name') | list -%}
        {%- set run_models = results | map(attribute='node') | selectattr('resource_type', 'equalto', 'model') | map(attribute='name') | list -%}
        {%- set previous = {} -%}
        {%- for row in run_query('select model, state, reason, unix_micros(since) as since from ' ~ relation) -%}
            {%- do previous.update({row['model']: {'state': row['state'], 'reason': row['reason'], 'since': row['since'] | int}}) -%}
        {%- endfor -%}
        {%- set states = {} -%}
        {%- for name, state in previous.items() if name in names and name not in run_models -%}{%- do states.update({name: state}) -%}{%- endfor -%}
        {%- for name, state in tidemark._unpublished_states(results, passed).items() -%}
            {%- do states.update({name: previous[name] if tidemark._is_same_state(previous.get(name), state) else state}) -%}
        {%- endfor -%}
        {%- if states != previous -%}
            {%- do run_query(tidemark._write_states(relation, states)) -%}
        {%- endif -%}
    {%- endif -%}
{%- endmacro %}

{#- {model: {state, reason, since: none}} of Tidemark's models that should have published something and did not. -#}
{% macro _unpublished_states(results, passed) -%}
    {%- set states = {} -%}
    {%- set published = passed | map(attribute='unique_id') | list -%}
    {%- for result in results if tidemark.is_staged_model(result.node) -%}
        {%- set message = result.message | string -%}
        {%- if result.node.unique_id not in published -%}
            {%- do states.update({result.node.name: {'state': 'failed', 'reason': tidemark._failure_reason(result, results), 'since': none}}) -%}
        {%- elif message.startswith('waiting for ') -%}
            {%- do states.update({result.node.name: {'state': 'waiting', 'reason': message, 'since': none}}) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(states) }}
{%- endmacro %}

{#- The error of a failed model; if a model is not published because of other nodes, the first of these with its error.
    -#}
{% macro _failure_reason(result, results) -%}
    {%- if tidemark._has_failed(result) -%}
        {{ return(tidemark._first_line(result.message | string)) }}
    {%- endif -%}
    {%- set lineage = tidemark.ancestors(result.node.unique_id) + [result.node.unique_id] -%}
    {%- for other in results if tidemark._has_failed(other) -%}
        {%- set nodes = tidemark._tested_nodes(other.node) if other.node.resource_type in ['test', 'unit_test'] else [other.node.unique_id] -%}
        {%- if nodes | select('in', lineage) | list -%}
            {{ return(other.node.name ~ ': ' ~ tidemark._first_line(other.message | string)) }}
        {%- endif -%}
    {%- endfor -%}
    {{ return('a dependency was not finished') }}
{%- endmacro %}

{% macro _has_failed(result) -%}
    {{ return(result.status | string in ['error', 'fail', 'runtime error']) }}
{%- endmacro %}

{#- The first informative line of an error of dbt, Spark or py4j: these begin with headings, and end with plans and
    stack traces. -#}
{% macro _first_line(message) -%}
    {%- for line in message.splitlines() | map('trim') if line and line[-1] != ')' and not line.endswith('Error') -%}
        {%- if not line.startswith('An error occurred while calling') -%}
            {{ return(line.removeprefix(': ')[:500]) }}
        {%- endif -%}
    {%- endfor -%}
    {{ return(message[:500]) }}
{%- endmacro %}

{#- Ignores numbers in a message, such as those of Spark's tasks: they differ from run to run. -#}
{% macro _is_same_state(previous, state) -%}
    {{ return(
        previous is not none and previous is defined and previous.state == state.state
        and modules.re.sub('[0-9]+', '0', previous.reason) == modules.re.sub('[0-9]+', '0', state.reason)
    ) }}
{%- endmacro %}

{% macro _write_states(relation, states) -%}
    {%- if not states -%}
        delete from {{ relation }}
    {%- else -%}
        insert overwrite {{ relation }}
        select
            model,
            state,
            reason,
            coalesce(timestamp_micros(since), current_timestamp())
        from values
            {%- for name, state in states.items() %}
            (
                {{ tidemark.literal(name) }},
                {{ tidemark.literal(state.state) }},
                {{ tidemark.literal(state.reason) }},
                {{ state.since ~ 'L' if state.since else 'cast(null as bigint)' }}
            ){{ ',' if not loop.last }}
            {%- endfor %}
            as states (model, state, reason, since)
    {%- endif -%}
{%- endmacro %}
