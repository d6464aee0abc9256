{#-
  Commits a release by its manifest, and applies it. `seen`: the newest release that each model of the run knew. If
  there is a newer release, the run was computed from an outdated state and is refused. It is also refused if another
  process moved a table's main without a release: once committed, this release could not be applied.
-#}
{% macro commit_release(models, seen) -%}
    {%- set releases = tidemark.get_core_relation('releases') | string -%}
    {%- set refs = tidemark.refs([releases] + models | map(attribute='report.staged') | sum(start=[])) -%}
    {%- set manifest = tidemark.manifest(models, refs) -%}
    {%- set diverged = tidemark.diverged_tables(manifest, refs) -%}
    {%- if diverged -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was published (' ~ diverged | join(', ') ~ '): another process wrote to it during this run. Run it again.'
        ) }}
    {%- endif -%}
    {%- set release_id = tidemark.append_release(manifest, refs.get(releases, {}).get('main'), seen) -%}
    {%- do refs.setdefault(releases, {}).update({tidemark.branch(): none}) -%}
    {%- do tidemark.apply_manifest(release_id, manifest, refs) -%}
{%- endmacro %}

{#- The rows of a manifest: one for each table; the first row of a model has its watermarks. -#}
{% macro manifest(models, refs) -%}
    {%- set rows = [] -%}
    {%- for model in models -%}
        {%- for table in model.tables -%}
            {%- do rows.append({
                'checkpoint_id': tidemark.newest_checkpoint(model.report.positions),
                'model': model.name,
                'table': table,
                'snapshot_id': refs.get(table, {}).get(tidemark.branch()),
                'branch': tidemark.branch(),
                'positions': model.report.positions if loop.first else {},
                'definition_hash': model.report.definition_hash,
                'columns': tojson(model.report.columns),
                'view_tables': tojson(model.report.view_tables) if model.report.get('view_tables') else none,
                'evaluation': tojson(model.report.evaluation) if loop.first and model.report.get('evaluation') else none,
            }) -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(rows) }}
{%- endmacro %}
