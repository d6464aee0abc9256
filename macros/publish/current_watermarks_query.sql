{#- The watermarks in `core.model_watermarks` (`is_written`), and those of the releases after `last_written`, up to
    `release_id`. -#}
{% macro current_watermarks_query(last_written, release_id) -%}
    select
        model,
        source,
        checkpoint_id,
        position,
        definition_hash,
        columns,
        release_id,
        view_tables,
        last_op,
        has_integer_keys,
        true as is_written
    from core.model_watermarks
    union all
    select
        model,
        model_watermark.source,
        model_watermark.checkpoint_id,
        model_watermark.position,
        definition_hash,
        columns,
        release_id,
        view_tables,
        last_op,
        has_integer_keys,
        false as is_written
    from core.releases
    lateral view explode(watermarks) as model_watermark
    where {{ tidemark.in_checkpoints('release_id', last_written, release_id) }}
{%- endmacro %}
