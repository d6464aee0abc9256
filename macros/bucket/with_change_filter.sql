{#- The definition's query. If the plan says so, it reads only the rows that changed since the watermark. -#}
{% macro with_change_filter(sql, plan) -%}
    {%- if plan.scope == 'changes' -%}
        {%- set since = plan.since[plan.definition.inputs[0].source].checkpoint_id -%}
        {%- set changed = tidemark.in_checkpoints('_checkpoint_id', since, tidemark.newest_checkpoint(plan.positions)) -%}
        {{ sql | replace(tidemark.changed_rows_placeholder(), 'where ' ~ changed) }}
    {%- else -%}
        {{ sql }}
    {%- endif -%}
{%- endmacro %}
