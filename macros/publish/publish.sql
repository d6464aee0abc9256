{#- The last step of a run (on-run-end): publishes the models that passed, and whose ancestors did. A target of another type
    has no models of Tidemark. -#}
{% macro publish(results) -%}
    {%- if execute and target.type == 'tidemark' and not var('tidemark_plan_only', false) -%}
        {%- do tidemark.run() -%}
        {%- do adapter.publish(results) -%}
    {%- endif -%}
{%- endmacro %}
