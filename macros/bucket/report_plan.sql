{#- With `--vars '{tidemark_plan_only: true}'` (`tidemark plan`) a definition only reports what it would do: its state,
    the reason, and how many rows of its inputs it would evaluate. -#}
{% macro report_plan(plan) -%}
    {%- set rows = tidemark.rows_to_evaluate(plan) if plan.evaluates else 0 -%}
    {%- do store_result('main', response=adapter.plan_response(plan, rows)) -%}
{%- endmacro %}
