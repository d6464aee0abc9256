{#- One row per model and source, the newest. The table is rewritten, so that it stays one small file. Each release of a
    definition has the watermarks of all its sources: an older watermark is of a source that the definition no longer
    reads. Invalidations of this run, after the last release whose watermarks are written (`last_written`), are written with
    this release. -#}
{% macro write_watermarks(last_written, release_id) -%}
    insert overwrite core.model_watermarks
    select
        model,
        source,
        newest.checkpoint_id,
        newest.position,
        newest.definition_hash,
        newest.columns,
        newest.release_id,
        newest.view_tables
    from (
        select
            *,
            max(newest.release_id) over (partition by model) as last_release_id
        from (
            select
                model,
                source,
                max_by(
                    struct(checkpoint_id, position, definition_hash, columns, release_id, view_tables), release_id
                ) as newest
            from (
                select
                    model,
                    source,
                    checkpoint_id,
                    position,
                    definition_hash,
                    columns,
                    release_id,
                    view_tables
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
                    view_tables
                from core.releases
                lateral view explode(marks) as model_watermark
                where {{ tidemark.in_checkpoints('release_id', last_written, release_id) }}
            )
            group by model, source
        )
    )
    where newest.definition_hash is null or newest.release_id = last_release_id
{%- endmacro %}
