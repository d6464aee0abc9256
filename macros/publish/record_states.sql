{#-
  Stores in `core.model_states` which models published nothing in this run, after everything that passed is published: models that
  failed, by themselves or with something that they depend on, and definitions that wait. Models that the run didn't select keep
  their state. If no state has changed, nothing is written.
-#}
{% macro record_states(results, passed) -%}
    {%- set relation = tidemark.core_relation('model_states') -%}
    {%- if tidemark.is_built(relation) and not var('plan_only', false) -%}
        {%- set names = graph.nodes.values() | selectattr('resource_type', 'equalto', 'model') | map(attribute='name') | list -%}
        {%- set run = results | map(attribute='node') | selectattr('resource_type', 'equalto', 'model') | map(attribute='name') | list -%}
        {%- set before = {} -%}
        {%- for row in run_query('select model, state, reason, unix_micros(since) as since from ' ~ relation) -%}
            {%- do before.update({row['model']: {'state': row['state'], 'reason': row['reason'], 'since': row['since'] | int}}) -%}
        {%- endfor -%}
        {%- set now = {} -%}
        {%- for name, state in before.items() if name in names and name not in run -%}{%- do now.update({name: state}) -%}{%- endfor -%}
        {%- for name, state in tidemark._found_states(results, passed).items() -%}
            {%- do now.update({name: before[name] if tidemark._is_same_state(before.get(name), state) else state}) -%}
        {%- endfor -%}
        {%- if now != before -%}
            {%- do run_query(tidemark._write_states(relation, now)) -%}
        {%- endif -%}
    {%- endif -%}
{%- endmacro %}

{#- {model: {state, reason, since: none}} of Tidemark's models that should have published something and did not. -#}
{% macro _found_states(results, passed) -%}
    {%- set found = {} -%}
    {%- set good = passed | map(attribute='unique_id') | list -%}
    {%- for result in results if tidemark.is_staged_model(result.node) -%}
        {%- set message = result.message | string -%}
        {%- if result.node.unique_id not in good -%}
            {%- do found.update({result.node.name: {'state': 'failed', 'reason': tidemark._why_not(result, results), 'since': none}}) -%}
        {%- elif message.startswith('waiting for ') -%}
            {%- do found.update({result.node.name: {'state': 'waiting', 'reason': message, 'since': none}}) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(found) }}
{%- endmacro %}

{#- What a model failed with; of a model that is not published because of others, the first of these with its message. -#}
{% macro _why_not(result, results) -%}
    {%- if tidemark._has_failed(result) -%}
        {{ return(tidemark._first_line(result.message | string)) }}
    {%- endif -%}
    {%- set line = tidemark.ancestors(result.node.unique_id) + [result.node.unique_id] -%}
    {%- for other in results if tidemark._has_failed(other) -%}
        {%- set of = tidemark._tested_by(other.node) if other.node.resource_type in ['test', 'unit_test'] else [other.node.unique_id] -%}
        {%- if of | select('in', line) | list -%}
            {{ return(other.node.name ~ ': ' ~ tidemark._first_line(other.message | string)) }}
        {%- endif -%}
    {%- endfor -%}
    {{ return('what it depends on was not finished') }}
{%- endmacro %}

{% macro _has_failed(result) -%}
    {{ return(result.status | string in ['error', 'fail', 'runtime error']) }}
{%- endmacro %}

{#- The first informative line of an error of dbt, Spark or py4j: they begin with headings, and end with plans and stack traces. -#}
{% macro _first_line(message) -%}
    {%- for line in message.splitlines() | map('trim') if line and line[-1] != ')' and not line.endswith('Error') -%}
        {%- if not line.startswith('An error occurred while calling') -%}
            {{ return(line.removeprefix(': ')[:500]) }}
        {%- endif -%}
    {%- endfor -%}
    {{ return(message[:500]) }}
{%- endmacro %}

{#- Numbers in a message, such as those of Spark's tasks, differ from run to run and are ignored. -#}
{% macro _is_same_state(before, state) -%}
    {{ return(
        before is not none and before is defined and before.state == state.state
        and modules.re.sub('[0-9]+', '0', before.reason) == modules.re.sub('[0-9]+', '0', state.reason)
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
