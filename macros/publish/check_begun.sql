{#-
  Refuses a run in a lake that is not begun, on-run-start: where nothing was ever landed its models have nothing to read, and where no run
  has made the tables that all are published by, one that doesn't select them could publish nothing, and would leave what it staged.
-#}
{% macro check_begun() -%}
    {%- set missing = [] -%}
    {%- set reads = execute and flags.WHICH in ['build', 'run', 'test'] and not var('plan_only', false) -%}
    {%- for name in (['releases', 'model_watermarks'] if reads else []) -%}
        {%- if not tidemark.is_built(tidemark.core_relation(name)) -%}{%- do missing.append('model.tidemark.' ~ name) -%}{%- endif -%}
    {%- endfor -%}
    {%- for unique_id in (selected_resources if missing else []) if tidemark._is_of_the_lake(unique_id) -%}
        {%- if not tidemark.is_built(api.Relation.create(schema='raw', identifier='snapshot_chunks')) -%}
            {{ exceptions.raise_compiler_error(
                'Nothing was done: no job has written to this lake, which has no raw.snapshot_chunks. '
                ~ 'Begin with tidemark run, or with tidemark stream and tidemark snapshot.'
            ) }}
        {%- elif missing | reject('in', selected_resources) | list -%}
            {{ exceptions.raise_compiler_error(
                'Nothing was done: no run has made core.releases and core.model_watermarks yet, by which all others publish. '
                ~ 'Let the first be one of all models: dbt build.'
            ) }}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{#- Whether a node reads, or is, what runs make of the raw tables. -#}
{% macro _is_of_the_lake(unique_id) -%}
    {{ return('model.tidemark.checkpoints' in tidemark.ancestors(unique_id) + [unique_id]) }}
{%- endmacro %}
