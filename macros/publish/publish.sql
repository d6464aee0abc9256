{#- The last step of a run (on-run-end): publishes the models that passed, with all that they depend on. -#}
{% macro publish(results) -%}
    {%- if execute and not var('plan_only', false) -%}
        {%- do tidemark.run() -%}
        {%- do adapter.publish(results) -%}
    {%- endif -%}
{%- endmacro %}

{#- The first step of a run (on-run-start): finishes a release that was interrupted between its steps. -#}
{% macro finish_interrupted_release() -%}
    {%- if execute -%}
        {%- do tidemark.run() -%}
        {%- do adapter.finish_interrupted_release() -%}
    {%- endif -%}
{%- endmacro %}

{#- Refuses a run in a lake that is not initialized, or with other settings of the models of `core`, on-run-start. -#}
{% macro assert_lake_initialized() -%}
    {%- if execute and flags.WHICH in ['build', 'run', 'test'] and not var('plan_only', false) -%}
        {%- do tidemark.run().graph.check_core_models() -%}
        {%- do tidemark.run().assert_lake_initialized() -%}
    {%- endif -%}
{%- endmacro %}
