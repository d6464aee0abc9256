{#- The state of this invocation, which all its nodes share: see `RunState` in dbt/adapters/tidemark/run_state.py. -#}
{% macro run() -%}
    {%- if target.type != 'tidemark' -%}
        {{ exceptions.raise_compiler_error("The target is of type '" ~ target.type ~ "' (profiles.yml). Set type: tidemark.") }}
    {%- endif -%}
    {{ return(adapter.run(graph, selected_resources)) }}
{%- endmacro %}
