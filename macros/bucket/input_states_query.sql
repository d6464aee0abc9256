{#-
  The states of the inputs of definitions, as {name: `<source>.<table>`, is_waiting, changed_at, changed_rows}. A row for
  each generation of a table has `is_waiting`: whether its newest snapshot is not admitted. A row for each table with
  changes has `changed_at`, the last checkpoint, and the number of changed rows. `positions`: of `row_state`. `lowest`: the checkpoint of each source that every
  published definition is past; older changes are not looked for.
-#}
{% macro input_states_query(positions, lowest) -%}
    select
        concat(source, '.', table_name) as name,
        max_by(status, checkpoint_id) = 'waiting' as is_waiting,
        cast(null as bigint) as changed_at,
        cast(null as bigint) as changed_rows
    from core.table_status
    where
        false
        {%- for source, point in positions.items() %}
        or (source = '{{ source }}' and {{ tidemark.uncompiled_literal('checkpoint_id') }} <= {{ tidemark.uncompiled_literal(point.checkpoint_id ~ 'L') }})
        {%- endfor %}
    group by source, table_name, table_id
    union all
    select
        concat(source, '.', table_name) as name,
        cast(null as boolean) as is_waiting,
        max(checkpoint_id) as changed_at,
        count(*) as changed_rows
    from core.row_state
    where
        false
        {%- for source, point in positions.items() %}
        {%- if source in lowest %}
        or (source = '{{ source }}' and {{ tidemark.in_checkpoints('checkpoint_id', lowest[source], point.checkpoint_id) }})
        {%- endif %}
        {%- endfor %}
    group by source, table_name
{%- endmacro %}
