{#-
  Applies a committed release, by its manifest and the branches (`refs`) of its tables: each table's main moves to the
  published Iceberg snapshot, then the watermarks are written. Applying it twice, or by two processes at once, changes
  nothing: a table without the branch has already been moved. Branches that other runs left in these tables are
  dropped: those runs can no longer publish. In `core.releases` only this release's own branch is dropped: a run whose
  branch was dropped there would silently write to a recreated branch, which begins at the newest main.
-#}
{% macro apply_manifest(release_id, manifest, refs) -%}
    {#- Read again: the watermarks that another process has just written must not be lost. -#}
    {%- do tidemark.invocation_cache().pop('watermarks', none) -%}
    {%- set watermarks = tidemark.watermarks() -%}
    {%- for row in manifest if row['branch'] in refs.get(row['table'], {}) -%}
        {%- do tidemark.fast_forward(row['table'], row['branch']) -%}
        {%- set columns = fromjson(row['columns']) -%}
        {%- set previous_columns = watermarks.get(row['model'], {}).values() | map(attribute='columns') | first | default([], true) -%}
        {%- if not row['table'].endswith('__ops') and (columns != previous_columns or tidemark.has_more_columns(row['table'], columns)) -%}
            {%- do tidemark.drop_unpublished_columns(row['table'], columns) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- do run_query(tidemark._write_watermarks(tidemark.newest_release(watermarks), release_id)) -%}
    {%- do tidemark.invocation_cache().pop('watermarks', none) -%}
    {%- set own_branches = manifest | map(attribute='branch') | list -%}
    {%- set releases = tidemark.get_core_relation('releases') | string -%}
    {%- for table, branches in refs.items() -%}
        {%- for branch in branches if branch.startswith('run_') and (table != releases or branch in own_branches) -%}
            {%- do tidemark.drop_branch(table, branch) -%}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}

{#- One row per model and source, the newest. The table is rewritten, so that it stays one small file. Each release of a
    definition has the watermarks of all its sources: an older watermark is of a source that the definition no longer
    reads. Invalidations of this run, after the last release whose watermarks are written (`done`), are written with
    this release. -#}
{% macro _write_watermarks(last_written, release_id) -%}
    insert overwrite {{ tidemark.get_core_relation('model_watermarks') }}
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
                from {{ tidemark.get_core_relation('model_watermarks') }}
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
                from {{ tidemark.get_core_relation('releases') }}
                lateral view explode(marks) as model_watermark
                where {{ tidemark.in_checkpoints('release_id', last_written, release_id) }}
            )
            group by model, source
        )
    )
    where newest.definition_hash is null or newest.release_id = last_release_id
{%- endmacro %}
