{#-
  The rows of `core.releases` that were superseded more than `keep_seconds` ago. The newest row of that time of each
  table stays, for readers that pin a later release, and the newest row with an evaluation. So does what the next run
  needs: the newest release, and the rows of dropped tables.
-#}
{% macro superseded_releases(keep_seconds, newest_release) -%}
    select
        model,
        `table`,
        release_id
    from (
        select
            *,
            row_number() over (
                partition by model, `table` order by snapshot_id is not null desc, release_id desc
            ) as table_rank,
            row_number() over (
                partition by model, `table` order by evaluation is not null desc, release_id desc
            ) as evaluation_rank
        from core.releases
        where published_at <= current_timestamp() - make_dt_interval(0, 0, 0, {{ keep_seconds }})
    )
    where
        table_rank > 1
        and (evaluation is null or evaluation_rank > 1)
        and release_id < {{ newest_release }}
        and not dropped
{%- endmacro %}
