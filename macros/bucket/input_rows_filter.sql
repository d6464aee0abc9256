{#- The rows of a definition's inputs that it evaluates, as a predicate on `row_state`: those that changed since its
    watermark, or all. -#}
{% macro input_rows_filter(plan) -%}
    {%- set since = plan.since if plan.scope == 'changes' else {} -%}
    {%- set newest = tidemark.newest_checkpoint(plan.positions) -%}
    (
        {%- for input in plan.definition.inputs %}
        {{ 'or ' if not loop.first }}(
            row_state.source = '{{ input.source }}'
            and row_state.table_name = {{ tidemark.literal(input.table) }}
            and {{ tidemark.in_checkpoints('row_state.checkpoint_id', since[input.source].checkpoint_id if input.source in since else 0, newest) }}
        )
        {%- endfor %}
    )
{%- endmacro %}
