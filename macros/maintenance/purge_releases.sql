{#-
  Deletes the rows of `core.releases` that were superseded more than `keep_seconds` ago, if they are
  `superseded_share` of all. It keeps for each table the newest row of that time, for readers that pin a later
  release, and the newest row with an evaluation. It also keeps what the next run needs: the newest release, and the
  rows of dropped tables. `main` is moved in the same way as by a run that publishes: of the two, the later is
  refused. Branches of refused or killed runs are dropped at the same age.
-#}
{% macro purge_releases(keep_seconds, superseded_share) -%}
    {%- set releases = tidemark.get_core_relation('releases') | string -%}
    {%- if tidemark.watermarks() -%}{%- do tidemark._drop_stale_branches(releases, keep_seconds) -%}{%- endif -%}
    {%- set superseded = tidemark._superseded_releases(releases, keep_seconds) -%}
    {%- set query -%}
        select
            (select count(*) from {{ releases }}) as all_rows,
            (select count(*) from ({{ superseded }})) as superseded
    {%- endset -%}
    {%- set counts = run_query(query)[0] if tidemark.watermarks() else {'superseded': 0} -%}
    {%- set count = counts['superseded'] | int -%}
    {%- if count and count >= superseded_share * (counts['all_rows'] | int) -%}
        {%- do run_query('alter table ' ~ adapter.qualified_name(releases) ~ ' create branch ' ~ adapter.branch()) -%}
        {%- do run_query(
            'merge into ' ~ releases ~ ' as manifest using (' ~ superseded ~ ') as superseded on manifest.model = superseded.model'
            ~ ' and manifest.`table` = superseded.`table` and manifest.release_id = superseded.release_id'
            ~ " when matched and left(manifest.columns, 1) <> '{' then delete"
        ) -%}
        {%- do run_query("call system.fast_forward('" ~ adapter.qualified_name(releases) ~ "', 'main', '" ~ adapter.branch() ~ "')") -%}
        {%- do adapter.drop_branch(releases) -%}
        {%- do log(releases ~ ': ' ~ count ~ ' superseded rows purged', info=true) -%}
    {%- endif -%}
{%- endmacro %}

{#- Drops the branches of runs that have written their manifest, but not moved main to it. For other branches main may
    be at the head, or have been: a run that has just created its branch and found it missing would write to a branch
    created from the newest main. -#}
{% macro _drop_stale_branches(releases, keep_seconds) -%}
    {%- set query -%}
        select refs.name
        from {{ releases }}.refs as refs
        inner join {{ releases }}.snapshots as heads on refs.snapshot_id = heads.snapshot_id
        left anti join {{ releases }}.history as published on refs.snapshot_id = published.snapshot_id
        where
            startswith(refs.name, 'run_')
            and heads.committed_at <= current_timestamp() - make_dt_interval(0, 0, 0, {{ keep_seconds }})
    {%- endset -%}
    {%- for row in run_query(query) -%}
        {%- do adapter.drop_branch(releases, row['name']) -%}
    {%- endfor -%}
{%- endmacro %}

{% macro _superseded_releases(releases, keep_seconds) -%}
    select
        model,
        `table`,
        release_id
    from (
        select
            *,
            row_number() over (
                partition by model, `table` order by snapshot_id is not null desc, release_id desc
            ) as place,
            row_number() over (
                partition by model, `table` order by evaluation is not null desc, release_id desc
            ) as evaluated_place
        from {{ releases }}
        where published_at <= current_timestamp() - make_dt_interval(0, 0, 0, {{ keep_seconds }})
    )
    where
        place > 1
        and (evaluation is null or evaluated_place > 1)
        and release_id < {{ tidemark.run().newest_release }}
        and left(columns, 1) <> '{'
{%- endmacro %}
