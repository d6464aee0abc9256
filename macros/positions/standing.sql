{#-
  Where a model of `core` stands in this run, as {source: {checkpoint_id, position}}. One that the run doesn't select
  stands at its mark; one that it does select stands where its inputs do, the lowest of them: dbt has brought it
  there before it runs what comes after, or skips what comes after.
-#}
{% macro standing(model_name='checkpoints') -%}
    {%- set inputs = {'events': ['checkpoints'], 'table_status': ['checkpoints'], 'row_state': ['events', 'table_status']} -%}
    {%- set selected = ('model.tidemark.' ~ model_name) in selected_resources -%}
    {%- if not selected -%}
        {{ return(tidemark.published_standing(model_name)) }}
    {%- elif model_name not in inputs -%}
        {{ return(tidemark.run_memory().get('checkpoints', tidemark.published_standing('checkpoints'))) }}
    {%- endif -%}
    {%- set lowest = {} -%}
    {%- for input in inputs[model_name] -%}
        {%- for source, at in tidemark.standing(input).items() -%}
            {%- if at.position < lowest.get(source, at).position or source not in lowest -%}
                {%- do lowest.update({source: at}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(lowest) }}
{%- endmacro %}

{#- What a data test of a model of `core` looks at: what the run brings to it, that is each moved source's newest checkpoint; in
    a run that doesn't select the model, such as `dbt test`, that of all sources. -#}
{% macro tested(model_name) -%}
    {%- set selected = ('model.tidemark.' ~ model_name) in selected_resources -%}
    {{ return(tidemark.moved(model_name) if selected else tidemark.standing(model_name)) }}
{%- endmacro %}

{#- Where a model stands by its marks alone. -#}
{% macro published_standing(model_name) -%}
    {%- set standing = {} -%}
    {%- for source, mark in tidemark.marks().get(model_name, {}).items() -%}
        {%- do standing.update({source: {'checkpoint_id': mark.checkpoint_id, 'position': mark.position}}) -%}
    {%- endfor -%}
    {{ return(standing) }}
{%- endmacro %}

{#- By `checkpoints`: lets the models after it know of the checkpoint that it stages. `moved`: {source: position}. -#}
{% macro remember_checkpoints(moved, checkpoint_id) -%}
    {%- set newest = {} -%}
    {%- do newest.update(tidemark.published_standing('checkpoints')) -%}
    {%- for source, position in moved.items() -%}
        {%- do newest.update({source: {'checkpoint_id': checkpoint_id, 'position': position}}) -%}
    {%- endfor -%}
    {%- do tidemark.run_memory().update({'checkpoints': newest}) -%}
{%- endmacro %}

{#- The newest checkpoint_id in a standing; 0 before the first. -#}
{% macro newest(standing) -%}
    {{ return(standing.values() | map(attribute='checkpoint_id') | max | default(0, true)) }}
{%- endmacro %}
