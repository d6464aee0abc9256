{#- The statement that replaces `core.model_watermarks` by `watermarks`, {model: {source: Watermark}}, in one file. -#}
{% macro write_watermarks(watermarks) -%}
    insert overwrite core.model_watermarks
    select /*+ coalesce(1) */ *
    from values
    {%- for model, by_source in watermarks.items() %}{% set is_last_model = loop.last %}
        {%- for source, watermark in by_source.items() %}
        (
            {{ tidemark.literal(model) }},
            {{ tidemark.literal(source) }},
            {{ watermark.checkpoint_id }}L,
            {{ watermark.position }}L,
            {{ tidemark.literal_or_null(watermark.definition_hash) }},
            {{ tidemark.literal(tojson(watermark.columns)) }},
            {{ watermark.release_id }}L,
            {{ tidemark.literal_or_null(tojson(watermark.view_tables) if watermark.view_tables else none) }},
            cast({{ 'null' if watermark.last_op is none else watermark.last_op }} as bigint),
            cast({{ 'null' if watermark.has_integer_keys is none else watermark.has_integer_keys | lower }} as boolean)
        ){{ ',' if not (is_last_model and loop.last) }}
        {%- endfor %}
    {%- endfor %}
        as watermarks (
            model, source, checkpoint_id, position, definition_hash, columns, release_id, view_tables, last_op, has_integer_keys
        )
{%- endmacro %}
