{#-
  Commits the manifest of a publication, and carries it out. `seen`: the newest publication that each model of the run
  knew. If another one is there by now, the run was computed from a state that is no longer the newest, and is refused.
-#}
{% macro commit_manifest(models, seen) -%}
    {%- set publications = tidemark.core_relation('publications') -%}
    {%- set refs = tidemark.refs([publications | string]) -%}
    {%- for model in models -%}
        {%- do refs.update(model.report.refs) -%}
    {%- endfor -%}
    {%- set main = refs.get(publications | string, {}).get('main') -%}
    {%- set newest = 0 -%}
    {%- if main -%}
        {%- set query = 'select max(publication_id) as newest from ' ~ publications ~ ' version as of ' ~ main -%}
        {%- set newest = run_query(query)[0]['newest'] | int -%}
    {%- endif -%}
    {%- if seen != [newest] -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was published (core.publications): another run published ' ~ newest
            ~ ' while this one was under way, from ' ~ seen | join(', ') ~ '. Run it again.'
        ) }}
    {%- endif -%}
    {%- if main -%}
        {%- do run_query('alter table ' ~ publications ~ ' create branch ' ~ tidemark.branch() ~ ' as of version ' ~ main) -%}
    {%- endif -%}
    {%- set manifest = tidemark._manifest(models, refs) -%}
    {%- do run_query(tidemark._insert_manifest(publications, manifest, newest + 1)) -%}
    {%- do tidemark.fast_forward(publications) -%}
    {%- do refs.setdefault(publications | string, {}).update({tidemark.branch(): none}) -%}
    {%- do tidemark.finish(newest + 1, manifest, refs) -%}
{%- endmacro %}

{#- The rows of a manifest: one for each table; the first of a model's has its marks. -#}
{% macro _manifest(models, refs) -%}
    {%- set rows = [] -%}
    {%- for model in models -%}
        {%- for table in model.tables -%}
            {%- do rows.append({
                'checkpoint_id': tidemark.newest(model.report.standing),
                'model': model.name,
                'table': table,
                'snapshot_id': refs.get(table, {}).get(tidemark.branch()),
                'branch': tidemark.branch(),
                'standing': model.report.standing if loop.first else {},
                'definition_hash': model.report.definition_hash,
                'columns': tojson(model.report.columns),
            }) -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(rows) }}
{%- endmacro %}

{% macro _insert_manifest(publications, manifest, publication_id) -%}
    insert into {{ publications }}
    select
        {{ publication_id }}L,
        *,
        current_timestamp()
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
            {{ tidemark.literal(row.columns) }}
        ){{ ',' if not loop.last }}
    {%- endfor %}
{%- endmacro %}

{% macro _marks_array(standing) -%}
    cast(array(
        {%- for source, at in standing.items() -%}
            named_struct('source', '{{ source }}', 'checkpoint_id', {{ at.checkpoint_id }}L, 'position', {{ at.position }}L)
            {{- ',' if not loop.last }}
        {%- endfor -%}
    ) as array<struct<source: string, checkpoint_id: bigint, position: bigint>>)
{%- endmacro %}
