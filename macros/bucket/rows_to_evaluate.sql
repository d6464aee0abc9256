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
