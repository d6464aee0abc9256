{#-
  Carries out a committed release, by its manifest and the branches (`refs`) of its tables: each table's main goes to the published snapshot, then the
  marks are written. Doing it twice, or by two at once, changes nothing: a table whose branch is gone has been moved on.
  Branches that runs left behind in these tables are dropped: whoever staged them can no longer publish. But of
  `core.releases` only this release's own: who finds his gone there would write to one made anew, from the newest.
-#}
{% macro finish(release_id, manifest, refs) -%}
    {#- As they are now: what another process has just written is not to be lost. -#}
    {%- do tidemark.run_memory().pop('marks', none) -%}
    {%- set marks = tidemark.marks() -%}
    {%- for row in manifest if row['branch'] in refs.get(row['table'], {}) -%}
        {%- do tidemark.fast_forward(row['table'], row['branch']) -%}
        {%- set columns = fromjson(row['columns']) -%}
        {%- set before = marks.get(row['model'], {}).values() | map(attribute='columns') | first | default([], true) -%}
        {%- if not row['table'].endswith('__ops') and (columns != before or tidemark.has_more_columns(row['table'], columns)) -%}
            {%- do tidemark.drop_unpublished_columns(row['table'], columns) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- do run_query(tidemark._write_marks(tidemark.newest_release(marks), release_id)) -%}
    {%- do tidemark.run_memory().pop('marks', none) -%}
    {%- set own = manifest | map(attribute='branch') | list -%}
    {%- set releases = tidemark.core_relation('releases') | string -%}
    {%- for table, branches in refs.items() -%}
        {%- for branch in branches if branch.startswith('run_') and (table != releases or branch in own) -%}
            {%- do tidemark.drop_branch(table, branch) -%}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}

{#- One row per model and source, the newest; rewritten whole, so that it stays one small file. Each release of a definition
    has the marks of all its sources: one that is older is of a source that it no longer reads. What the run tore before
    this release, after the last one whose marks are `done`, is written with it. -#}
{% macro _write_marks(done, release_id) -%}
    insert overwrite {{ tidemark.core_relation('model_watermarks') }}
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
                from {{ tidemark.core_relation('model_watermarks') }}
                union all
                select
                    model,
                    mark.source,
                    mark.checkpoint_id,
                    mark.position,
                    definition_hash,
                    columns,
                    release_id,
                    view_tables
                from {{ tidemark.core_relation('releases') }}
                lateral view explode(marks) as mark
                where {{ tidemark.of_checkpoints('release_id', done, release_id) }}
            )
            group by model, source
        )
    )
    where newest.definition_hash is null or newest.release_id = last_release_id
{%- endmacro %}
