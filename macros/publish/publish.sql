{#- The last step of a run (on-run-end): publishes the models that passed, and whose ancestors did. Like the first step, it
    does nothing on a target of another type. -#}
{% macro publish(results) -%}
    {%- if execute and target.type == 'tidemark' and not var('tidemark_plan_only', false) -%}
        {%- do tidemark.run() -%}
        {%- do adapter.publish(results) -%}
    {%- endif -%}
{%- endmacro %}
