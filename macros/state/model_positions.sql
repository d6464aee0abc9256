{#-
  The positions of a model of `core` in this run, as {source: {checkpoint_id, position}}. A model that the run does
  not select is at its watermark. A selected model is at the lowest position of its inputs: dbt builds it before the
  models after it, or skips these.
-#}
{% macro model_positions(model_name='checkpoints') -%}
    {%- set inputs = {'events': ['checkpoints'], 'table_status': ['checkpoints'], 'row_state': ['events', 'table_status']} -%}
    {%- set selected = ('model.tidemark.' ~ model_name) in selected_resources -%}
    {%- if not selected -%}
        {{ return(tidemark.published_positions(model_name)) }}
    {%- elif model_name not in inputs -%}
        {{ return(tidemark.invocation_cache().get('checkpoints', tidemark.published_positions('checkpoints'))) }}
    {%- endif -%}
    {%- set lowest = {} -%}
    {%- for input in inputs[model_name] -%}
        {%- for source, point in tidemark.model_positions(input).items() -%}
            {%- if point.position < lowest.get(source, point).position or source not in lowest -%}
                {%- do lowest.update({source: point}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(lowest) }}
{%- endmacro %}

{#- The positions that a data test of a model of `core` checks: in a run that selects the model, the newest checkpoint
    of each advanced source; in another run, such as `dbt test`, that of all sources. -#}
{% macro tested_positions(model_name) -%}
    {%- set selected = ('model.tidemark.' ~ model_name) in selected_resources -%}
    {{ return(tidemark.advanced(model_name) if selected else tidemark.model_positions(model_name)) }}
{%- endmacro %}

{#- A model's positions by its watermarks alone. -#}
{% macro published_positions(model_name) -%}
    {%- set positions = {} -%}
    {%- for source, watermark in tidemark.watermarks().get(model_name, {}).items() -%}
        {%- do positions.update({source: {'checkpoint_id': watermark.checkpoint_id, 'position': watermark.position}}) -%}
    {%- endfor -%}
    {{ return(positions) }}
{%- endmacro %}

{#- Called by `checkpoints`: caches the checkpoint that it stages for the models after it. `advanced`: {source:
    position}. -#}
{% macro cache_checkpoints(advanced, checkpoint_id) -%}
    {%- set newest = {} -%}
    {%- do newest.update(tidemark.published_positions('checkpoints')) -%}
    {%- for source, position in advanced.items() -%}
        {%- do newest.update({source: {'checkpoint_id': checkpoint_id, 'position': position}}) -%}
    {%- endfor -%}
    {%- do tidemark.invocation_cache().update({'checkpoints': newest}) -%}
{%- endmacro %}

{#- The newest checkpoint_id of some positions; 0 before the first. -#}
{% macro newest_checkpoint(positions) -%}
    {{ return(positions.values() | map(attribute='checkpoint_id') | max | default(0, true)) }}
{%- endmacro %}
