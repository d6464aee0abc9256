{#-
  Commits the manifest of a publication and returns its id. `seen`: the newest publication that each model of the run knew.
  If another one is there by now, the run was computed from a state that is no longer the newest and is refused.
-#}
{% macro commit_manifest(models, seen) -%}
    {%- set publications = tidemark.core_relation('publications') -%}
    {%- set main = tidemark.refs([publications]).get(publications | string, {}).get('main') -%}
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
    {%- do run_query(tidemark._insert_manifest(publications, models, newest + 1)) -%}
    {%- do tidemark.fast_forward(publications) -%}
    {{ return(newest + 1) }}
{%- endmacro %}

{% macro _insert_manifest(publications, models, publication_id) -%}
    {%- set tables = models | map(attribute='tables') | sum(start=[]) -%}
    {%- set refs = tidemark.refs(tables) -%}
    insert into {{ publications }}
    select
        {{ publication_id }}L,
        col1,
        col2,
        col3,
        col4,
        '{{ tidemark.branch() }}',
        col5,
        col6,
        col7,
        current_timestamp()
    from values
    {%- for model in models %}
        {%- set last_model = loop.last %}
        {%- for table in model.tables %}
        (
            {{ tidemark.newest(model.report.standing) }}L,
            '{{ model.name }}',
            '{{ table }}',
            cast({{ refs.get(table, {}).get(tidemark.branch(), 'null') }} as bigint),
            {{ tidemark._marks_array(model.report.standing if loop.first else {}) }},
            {{ "'" ~ model.report.definition_hash ~ "'" if model.report.definition_hash else 'cast(null as string)' }},
            {{ tidemark.literal(tojson(model.report.columns)) }}
        ){{ ',' if not (loop.last and last_model) }}
        {%- endfor %}
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
