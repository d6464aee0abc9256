{#- The state of this invocation, which all its nodes share: see `RunState` in dbt/adapters/tidemark/run_state.py. -#}
{% macro run() -%}
    {%- if target.type != 'tidemark' -%}
        {{ exceptions.raise_compiler_error("The target is of type '" ~ target.type ~ "' (profiles.yml). Set type: tidemark.") }}
    {%- endif -%}
    {{ return(adapter.run(graph, selected_resources)) }}
{%- endmacro %}

{#- The watermarks of all published models, as at the start of the run, by model and source. -#}
{% macro watermarks() -%}
    {{ return({} if tidemark.only_renders() else tidemark.run().watermarks) }}
{%- endmacro %}

{#- The ranges that this run processes in a model of `core`, a list. -#}
{% macro ranges(model_name) -%}
    {{ return([] if tidemark.only_renders() else tidemark.run().ranges(model_name)) }}
{%- endmacro %}

{#- Whether models are rendered without being run: by `dbt compile` and `dbt docs generate`, where a model would query the
    log for its SQL, or when a project is parsed that also has targets of another type. -#}
{% macro only_renders() -%}
    {{ return(flags.WHICH in ['compile', 'generate'] or not (execute or target.type == 'tidemark')) }}
{%- endmacro %}

{#- The positions that a data test of a model of `core` checks. -#}
{% macro tested_positions(model_name) -%}
    {{ return({} if tidemark.only_renders() else tidemark.run().tested_positions(model_name)) }}
{%- endmacro %}

{#- The newest checkpoint_id of some positions; 0 before the first. -#}
{% macro newest_checkpoint(positions) -%}
    {{ return(positions.values() | map(attribute='checkpoint_id') | max | default(0, true)) }}
{%- endmacro %}
