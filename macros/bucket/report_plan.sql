{#- With `--vars '{plan_only: true}'` (`tidemark plan`) a definition does nothing but say what it would do: `state`, why, and how
    many rows of its inputs it would evaluate. -#}
{% macro report_plan(plan) -%}
    {%- do store_raw_result(
        name='main',
        message=plan.reason,
        code=tojson({
            'standing': {},
            'staged': [],
            'seen': tidemark.newest_release(tidemark.marks()),
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
        from {{ tidemark.core_relation('row_state') }} as row_state
        where
            {{ tidemark.touched_rows(plan) }}
            {{- ' and not deleted' if plan.scope == 'all' }}
    {%- endset -%}
    {{ return(run_query(query)[0]['to_evaluate'] | int) }}
{%- endmacro %}
