{#- With `--vars '{tidemark_plan_only: true}'` (`tidemark plan`) a definition only reports what it would do: its state,
    the reason, and how many rows of its inputs it would evaluate. -#}
{% macro report_plan(plan) -%}
    {%- set rows = tidemark.rows_to_evaluate(plan) if plan.evaluates else 0 -%}
    {%- do store_result('main', response=adapter.plan_response(plan, rows)) -%}
{%- endmacro %}

{#- The number of rows of its inputs that a definition evaluates. -#}
{% macro rows_to_evaluate(plan) -%}
    {%- set query -%}
        select count(*) as to_evaluate
        from core.row_state as row_state
        where
            {{ tidemark.input_rows_filter(plan) }}
            {{- ' and not deleted' if plan.scope == 'all' }}
    {%- endset -%}
    {{ return(run_query(query)[0]['to_evaluate'] | int) }}
{%- endmacro %}
