{#-
  The state of all inputs of definitions, as {name: `<source>.<table>`, is_waiting, changed_at}. An input is ready when
  the newest snapshot of each of its generations that has not ended is admitted. `positions`: of `row_state`. `lowest`:
  the checkpoint of each source that every published definition is past; older changes are not looked for.
-#}
{% macro input_states_query(positions, lowest) -%}
    with decided as (
        select
            source,
            table_name,
            table_id,
            max_by(status, checkpoint_id) as status
        from core.table_status
        where
            false
            {%- for source, point in positions.items() %}
            or (source = '{{ source }}' and {{ tidemark.uncompiled_literal('checkpoint_id') }} <= {{ tidemark.uncompiled_literal(point.checkpoint_id ~ 'L') }})
            {%- endfor %}
        group by source, table_name, table_id
    ),

    readiness as (
        select
            source,
            table_name,
            bool_or(status = 'waiting') as is_waiting
        from decided
        group by source, table_name
    ),

    changes as (
        select
            source,
            table_name,
            max(checkpoint_id) as changed_at
        from core.row_state
        where
            false
            {%- for source, point in positions.items() %}
            {%- if source in lowest %}
            or (source = '{{ source }}' and {{ tidemark.in_checkpoints('checkpoint_id', lowest[source], point.checkpoint_id) }})
            {%- endif %}
            {%- endfor %}
        group by source, table_name
    )

    select
        concat(readiness.source, '.', readiness.table_name) as name,
        readiness.is_waiting,
        coalesce(changes.changed_at, 0) as changed_at
    from readiness
    left join changes on readiness.source = changes.source and readiness.table_name = changes.table_name
{%- endmacro %}
