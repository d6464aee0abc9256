{#-
  The commit itself: gives the release's id. A run that has torn definitions has made a release of each (`tear`), on the
  same branch, and goes on from the last: where another run's came between, Iceberg refuses to move main.
-#}
{% macro append_manifest(manifest, main, seen, tears=false) -%}
    {%- set releases = tidemark.core_relation('releases') -%}
    {%- set memory = tidemark.run_memory() -%}
    {%- set newest = 0 -%}
    {%- if main -%}
        {%- set query = 'select max(release_id) as newest from ' ~ releases ~ ' version as of ' ~ main -%}
        {%- set newest = run_query(query)[0]['newest'] | int -%}
    {%- endif -%}
    {%- if seen | length != 1 or newest not in [seen[0], memory.get('torn')] -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was published (core.releases): another run published ' ~ newest
            ~ ' while this one was under way, from ' ~ seen | join(', ') ~ '. Run it again.'
        ) }}
    {%- endif -%}
    {%- if main -%}
        {%- do run_query('alter table ' ~ tidemark.whole_name(releases) ~ ' create branch if not exists ' ~ tidemark.branch() ~ ' as of version ' ~ main) -%}
    {%- endif -%}
    {%- set release_id = newest + 1 -%}
    {%- if tears -%}{%- do memory.update({'torn': release_id}) -%}{%- endif -%}
    {%- do run_query(tidemark._insert_manifest(releases, manifest, release_id)) -%}
    {%- do tidemark.fast_forward(releases) -%}
    {{ return(release_id) }}
{%- endmacro %}

{% macro _insert_manifest(releases, manifest, release_id) -%}
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
            {{ tidemark._marks_array(row.standing) }},
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

{% macro _marks_array(standing) -%}
    cast(array(
        {%- for source, at in standing.items() -%}
            named_struct('source', '{{ source }}', 'checkpoint_id', {{ at.checkpoint_id }}L, 'position', {{ at.position }}L)
            {{- ',' if not loop.last }}
        {%- endfor -%}
    ) as array<struct<source: string, checkpoint_id: bigint, position: bigint>>)
{%- endmacro %}
