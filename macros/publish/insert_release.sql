{#- The statement that appends a release: its manifest's rows (`ManifestRow`). -#}
{% macro insert_release(rows, release_id) -%}
    insert into core.releases (
        release_id, checkpoint_id, model, `table`, snapshot_id, branch, watermarks, definition_hash, columns, published_at, view_tables,
        evaluation, dropped, last_op, has_integer_keys
    )
    select
        {{ release_id }}L,
        checkpoint_id,
        model,
        table_name,
        snapshot_id,
        branch,
        watermarks,
        definition_hash,
        columns,
        current_timestamp(),
        view_tables,
        evaluation,
        dropped,
        last_op,
        has_integer_keys
    from values
    {%- for row in rows %}
        (
            {{ row.checkpoint_id }}L,
            {{ tidemark.literal(row.model) }},
            {{ tidemark.literal(row.table) }},
            cast({{ row.snapshot_id or 'null' }} as bigint),
            '{{ row.branch }}',
            {{ tidemark._watermarks_array(row.positions) }},
            {{ tidemark.literal_or_null(row.definition_hash) }},
            {{ tidemark.literal(row.columns) }},
            {{ tidemark.literal_or_null(row.view_tables) }},
            {{ tidemark.literal_or_null(row.evaluation) }},
            {{ row.dropped | lower }},
            cast({{ 'null' if row.last_op is none else row.last_op }} as bigint),
            cast({{ 'null' if row.has_integer_keys is none else row.has_integer_keys | lower }} as boolean)
        ){{ ',' if not loop.last }}
    {%- endfor %}
        as manifest (
            checkpoint_id, model, table_name, snapshot_id, branch, watermarks, definition_hash, columns, view_tables, evaluation,
            dropped, last_op, has_integer_keys
        )
{%- endmacro %}

{% macro _watermarks_array(positions) -%}
    cast(array(
        {%- for source, point in positions.items() -%}
            named_struct('source', '{{ source }}', 'checkpoint_id', {{ point.checkpoint_id }}L, 'position', {{ point.position }}L)
            {{- ',' if not loop.last }}
        {%- endfor -%}
    ) as array<struct<source: string, checkpoint_id: bigint, position: bigint>>)
{%- endmacro %}
