{#- The statement that writes the states of models that published nothing: {model: state, reason, since}. -#}
{% macro write_model_states(states) -%}
    insert overwrite core.model_states
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
{%- endmacro %}
