{#- The state of this invocation, which all its nodes share: see `RunState` in dbt/adapters/tidemark/run_state.py. -#}
{% macro run() -%}
    {%- if target.type != 'tidemark' -%}
        {{ exceptions.raise_compiler_error("The package tidemark needs a target with type: tidemark, not '" ~ target.type ~ "' (profiles.yml).") }}
    {%- endif -%}
    {{ return(adapter.run(graph, selected_resources)) }}
{%- endmacro %}

{#- The watermarks of all published models, as at the start of the run, by model and source. -#}
{% macro watermarks() -%}
    {{ return(tidemark.run().watermarks) }}
{%- endmacro %}

{#- The ranges that this run processes in a model of `core`, a list. None for commands that only render SQL: the models
    query Spark about their ranges. -#}
{% macro ranges(model_name) -%}
    {{ return([] if flags.WHICH in ['compile', 'generate'] else tidemark.run().ranges(model_name)) }}
{%- endmacro %}

{#- The positions that a data test of a model of `core` checks. -#}
{% macro tested_positions(model_name) -%}
    {{ return(tidemark.run().tested_positions(model_name)) }}
{%- endmacro %}

{#- The newest checkpoint_id of some positions; 0 before the first. -#}
{% macro newest_checkpoint(positions) -%}
    {{ return(positions.values() | map(attribute='checkpoint_id') | max | default(0, true)) }}
{%- endmacro %}
