{#- With `--vars '{plan_only: true}'` (`tidemark plan`) a definition only reports what it would do: `state`, the reason,
    and how many rows of its inputs it would evaluate. -#}
{% macro report_plan(plan) -%}
    {%- do store_raw_result(
        name='main',
        message=plan.reason,
        code=tojson({
            'positions': {},
            'staged': [],
            'seen': tidemark.newest_release(tidemark.watermarks()),
            'definition_hash': plan.definition_hash,
            'state': 'new' if not plan.since else 'waiting' if plan.is_waiting else 'unchanged' if plan.is_published else 'changed',
            'reason': plan.reason,
            'rows': tidemark._rows_to_evaluate(plan) if plan.evaluates else 0,
        }),
        rows_affected=0
    ) -%}
{%- endmacro %}

{% macro _rows_to_evaluate(plan) -%}
    {%- set query -%}
        select count(*) as to_evaluate
        from {{ tidemark.get_core_relation('row_state') }} as row_state
        where
            {{ tidemark.input_rows_filter(plan) }}
            {{- ' and not deleted' if plan.scope == 'all' }}
    {%- endset -%}
    {{ return(run_query(query)[0]['to_evaluate'] | int) }}
{%- endmacro %}
