{#- The first step of a run (on-run-start): refuses what would lose rows, finishes a release that was interrupted between
    its steps, and retires the tables of definitions whose models are now of another kind. Does nothing on a target of
    another type, which has no models of Tidemark. -#}
{% macro start_run() -%}
    {%- if execute and target.type == 'tidemark' -%}
        {%- set run = tidemark.run() -%}
        {%- if invocation_args_dict.get('empty') or invocation_args_dict.get('sample') -%}
            {%- do run.graph.reject_empty_and_sample() -%}
        {%- endif -%}
        {%- if flags.WHICH in ['build', 'run', 'test'] and not var('tidemark_plan_only', false) -%}
            {%- do run.graph.check_core_models() -%}
            {%- do run.assert_lake_initialized() -%}
        {%- endif -%}
        {%- do adapter.recover() -%}
    {%- endif -%}
{%- endmacro %}
