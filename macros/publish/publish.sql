{#- The last step of a run (on-run-end): publishes the models that passed, with all that they depend on. -#}
{% macro publish(results) -%}
    {%- if execute and not var('tidemark_plan_only', false) -%}
        {%- do tidemark.run() -%}
        {%- do adapter.publish(results) -%}
    {%- endif -%}
{%- endmacro %}
