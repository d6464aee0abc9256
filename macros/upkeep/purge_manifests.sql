{#-
  Deletes from `core.releases` what was superseded more than `keep_seconds` ago, if it is `superseded_share` of all. Kept
  are, for each table, the newest row of that time, for readers that pin a later release, and the newest row with an evaluation;
  and what the next run needs: the newest release, and the rows of tables that were dropped. `main` is moved in the way of a run
  that publishes: of the two, the later is refused. Branches of runs that were overtaken or killed are dropped at the same age.
-#}
{% macro purge_manifests(keep_seconds, superseded_share) -%}
    {%- set releases = tidemark.core_relation('releases') | string -%}
    {%- if tidemark.marks() -%}{%- do tidemark._drop_left_branches(releases, keep_seconds) -%}{%- endif -%}
    {%- set superseded = tidemark._superseded_manifests(releases, keep_seconds) -%}
    {%- set query -%}
        select
            (select count(*) from {{ releases }}) as all_rows,
            (select count(*) from ({{ superseded }})) as superseded
    {%- endset -%}
    {%- set found = run_query(query)[0] if tidemark.marks() else {'superseded': 0} -%}
    {%- set count = found['superseded'] | int -%}
    {%- if count and count >= superseded_share * (found['all_rows'] | int) -%}
        {%- do run_query('alter table ' ~ tidemark.whole_name(releases) ~ ' create branch ' ~ tidemark.branch()) -%}
        {%- do run_query(
            'merge into ' ~ releases ~ ' as manifest using (' ~ superseded ~ ') as superseded on manifest.model = superseded.model'
            ~ ' and manifest.`table` = superseded.`table` and manifest.release_id = superseded.release_id'
            ~ " when matched and left(manifest.columns, 1) <> '{' then delete"
        ) -%}
        {%- do tidemark.fast_forward(releases) -%}
        {%- do tidemark.drop_branch(releases, tidemark.branch()) -%}
        {%- do log(releases ~ ': ' ~ count ~ ' superseded rows purged', info=true) -%}
    {%- endif -%}
{%- endmacro %}

{#- Those of runs that have written their manifest, but not moved main to it. Of others main may be at the head, or have been: who has
    just made one, and found it gone, would write to another, made from the newest. -#}
{% macro _drop_left_branches(releases, keep_seconds) -%}
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
        {%- do tidemark.drop_branch(releases, row['name']) -%}
    {%- endfor -%}
{%- endmacro %}

{% macro _superseded_manifests(releases, keep_seconds) -%}
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
        and release_id < {{ tidemark.newest_release(tidemark.marks()) }}
        and left(columns, 1) <> '{'
{%- endmacro %}
