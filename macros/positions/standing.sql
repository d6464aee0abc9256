{#-
  Where a model of `core` stands in this run, as {source: {checkpoint_id, position}}. One that the run doesn't select
  stands at its mark. One that it does select stands where its inputs do, the lowest of them: dbt has brought it
  there before it runs what comes after, or skips what comes after.
-#}
{% macro standing(model_name='checkpoints', marks=none) -%}
    {%- set marks = tidemark.marks() if marks is none else marks -%}
    {%- set inputs = {'events': ['checkpoints'], 'tables': ['checkpoints'], 'row_state': ['events', 'tables']} -%}
    {%- set selected = ('model.tidemark.' ~ model_name) in selected_resources -%}
    {%- if not selected -%}
        {{ return(marks.get(model_name, {})) }}
    {%- elif model_name not in inputs -%}
        {{ return(tidemark._newest_checkpoints(marks.get('checkpoints', {}))) }}
    {%- endif -%}
    {%- set lowest = {} -%}
    {%- for input in inputs[model_name] -%}
        {%- for source, at in tidemark.standing(input, marks).items() -%}
            {%- if at.position < lowest.get(source, at).position or source not in lowest -%}
                {%- do lowest.update({source: at}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(lowest) }}
{%- endmacro %}

{#- The published checkpoints, and over them those that this run has staged. -#}
{% macro _newest_checkpoints(published) -%}
    {%- set newest = {} -%}
    {%- do newest.update(published) -%}
    {%- set checkpoints = tidemark.core_relation('checkpoints') -%}
    {%- if execute and tidemark.is_built(checkpoints) -%}
        {%- set staged = run_query(
            'select source, checkpoint_id, lsn from ' ~ checkpoints
            ~ ' where checkpoint_id > ' ~ tidemark.newest(published) ~ ' order by checkpoint_id'
        ) -%}
        {%- for row in staged -%}
            {%- do newest.update({row['source']: {'checkpoint_id': row['checkpoint_id'] | int, 'position': row['lsn'] | int}}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(newest) }}
{%- endmacro %}

{#- The newest checkpoint_id in a standing; 0 before the first. -#}
{% macro newest(standing) -%}
    {{ return(standing.values() | map(attribute='checkpoint_id') | max | default(0, true)) }}
{%- endmacro %}
