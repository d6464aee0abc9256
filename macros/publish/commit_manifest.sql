{#-
  Commits the manifest of a release, and carries it out. `seen`: the newest release that each model of the run
  knew. If another one is there by now, the run was computed from a state that is no longer the newest, and is refused. So it is
  where a table's main was moved by somebody who publishes nothing: once committed, it could not be carried out.
-#}
{% macro commit_manifest(models, seen) -%}
    {%- set releases = tidemark.core_relation('releases') | string -%}
    {%- set refs = tidemark.refs([releases] + models | map(attribute='report.staged') | sum(start=[])) -%}
    {%- set manifest = tidemark.manifest(models, refs) -%}
    {%- set moved = tidemark.moved_mains(manifest, refs) -%}
    {%- if moved -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was published (' ~ moved | join(', ') ~ '): somebody else wrote to it while this run was under way. Run it again.'
        ) }}
    {%- endif -%}
    {%- set release_id = tidemark.append_manifest(manifest, refs.get(releases, {}).get('main'), seen) -%}
    {%- do refs.setdefault(releases, {}).update({tidemark.branch(): none}) -%}
    {%- do tidemark.finish(release_id, manifest, refs) -%}
{%- endmacro %}

{#- The rows of a manifest: one for each table; the first of a model's has its marks. -#}
{% macro manifest(models, refs) -%}
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
                'view_tables': tojson(model.report.view_tables) if model.report.get('view_tables') else none,
                'evaluation': tojson(model.report.evaluation) if loop.first and model.report.get('evaluation') else none,
            }) -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(rows) }}
{%- endmacro %}
