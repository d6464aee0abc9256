{#-
  The commit of a release; returns its id. A run that invalidated definitions has made a release for each of them
  (`invalidate_published`), on the same branch, and continues after the last one. If another run made a release in
  between, Iceberg refuses to move main.
-#}
{% macro append_release(manifest, main, seen, invalidates=false) -%}
    {%- set releases = tidemark.get_core_relation('releases') -%}
    {%- set cache = tidemark.invocation_cache() -%}
    {%- set newest = 0 -%}
    {%- if main -%}
        {%- set query = 'select max(release_id) as newest from ' ~ releases ~ ' version as of ' ~ main -%}
        {%- set newest = run_query(query)[0]['newest'] | int -%}
    {%- endif -%}
    {%- if seen | length != 1 or newest not in [seen[0], cache.get('invalidated')] -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was published (core.releases): another run published ' ~ newest
            ~ ' during this run, which is based on ' ~ seen | join(', ') ~ '. Run it again.'
        ) }}
    {%- endif -%}
    {%- if main -%}
        {%- do run_query('alter table ' ~ tidemark.qualified_name(releases) ~ ' create branch if not exists ' ~ tidemark.branch() ~ ' as of version ' ~ main) -%}
    {%- endif -%}
    {%- set release_id = newest + 1 -%}
    {%- if invalidates -%}{%- do cache.update({'invalidated': release_id}) -%}{%- endif -%}
    {%- do run_query(tidemark._insert_release(releases, manifest, release_id)) -%}
    {%- do tidemark.fast_forward(releases) -%}
    {{ return(release_id) }}
{%- endmacro %}

{% macro _insert_release(releases, manifest, release_id) -%}
    insert into {{ releases }} (
        release_id, checkpoint_id, model, `table`, snapshot_id, branch, marks, definition_hash, columns, published_at, view_tables,
        evaluation
    )
    select
        {{ release_id }}L,
        checkpoint_id,
        model,
        table_name,
        snapshot_id,
        branch,
        marks,
        definition_hash,
        columns,
        current_timestamp(),
        view_tables,
        evaluation
    from values
    {%- for row in manifest %}
        (
            {{ row.checkpoint_id }}L,
            {{ tidemark.literal(row.model) }},
            {{ tidemark.literal(row.table) }},
            cast({{ row.snapshot_id or 'null' }} as bigint),
            '{{ row.branch }}',
            {{ tidemark._watermarks_array(row.positions) }},
            {{ tidemark.literal(row.definition_hash) if row.definition_hash else 'cast(null as string)' }},
            {{ tidemark.literal(row.columns) }},
            {{ tidemark.literal(row.view_tables) if row.view_tables else 'cast(null as string)' }},
            {{ tidemark.literal(row.evaluation) if row.evaluation else 'cast(null as string)' }}
        ){{ ',' if not loop.last }}
    {%- endfor %}
        as manifest (
            checkpoint_id, model, table_name, snapshot_id, branch, marks, definition_hash, columns, view_tables, evaluation
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
