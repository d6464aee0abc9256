{#-
  Refuses a run in a lake that is not initialized, on-run-start. Before the first commit of a source the models have
  nothing to read. Before a run has created the tables that all models are published by, a run that does not select
  them could publish nothing, and would leave its staged rows.
-#}
{% macro assert_lake_initialized() -%}
    {%- set missing = [] -%}
    {%- set reads = execute and flags.WHICH in ['build', 'run', 'test'] and not var('plan_only', false) -%}
    {%- for name in (['releases', 'model_watermarks'] if reads else []) -%}
        {%- if not tidemark.relation_exists(tidemark.get_core_relation(name)) -%}{%- do missing.append('model.tidemark.' ~ name) -%}{%- endif -%}
    {%- endfor -%}
    {%- for unique_id in (selected_resources if missing else []) if tidemark._depends_on_raw_tables(unique_id) -%}
        {%- if not tidemark.relation_exists(api.Relation.create(schema='raw', identifier='snapshot_chunks')) -%}
            {{ exceptions.raise_compiler_error(
                'Nothing was done: no job has written to this lake: raw.snapshot_chunks is missing. '
                ~ 'Start with tidemark run, or with tidemark stream and tidemark snapshot.'
            ) }}
        {%- elif missing | reject('in', selected_resources) | list -%}
            {{ exceptions.raise_compiler_error(
                'Nothing was done: no run has created core.releases and core.model_watermarks yet, by which all models are published. '
                ~ 'Build all models first: dbt build.'
            ) }}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{#- Whether a node is, or depends on, a model over the raw tables. -#}
{% macro _depends_on_raw_tables(unique_id) -%}
    {{ return('model.tidemark.checkpoints' in tidemark.ancestors(unique_id) + [unique_id]) }}
{%- endmacro %}
