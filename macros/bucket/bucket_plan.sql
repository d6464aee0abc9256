{#-
  What a run does with a definition: {evaluates, is_waiting, scope, since, positions, definition_hash, columns,
  view_tables, is_published, reason}. `scope` is 'changes' (the rows that changed since the watermark, which `since`
  has by source) or 'all'. A waiting definition keeps its watermark and its old hash: it is evaluated, as changed,
  when its inputs are ready. A definition is new if one of its tables was dropped or replaced manually (not
  `is_there`).
-#}
{% macro bucket_plan(relation, definition) -%}
    {%- set row_state_positions = tidemark.model_positions('row_state') -%}
    {%- set is_there = tidemark.is_bucket_table(relation) and tidemark.relation_exists(tidemark.ops_relation(relation)) -%}
    {%- set own_watermarks = tidemark.watermarks().get(definition.name, {}) if is_there else {} -%}
    {%- set sources = definition.inputs | map(attribute='source') | unique | list -%}
    {%- set positions = {} -%}
    {%- for source in sources if source in row_state_positions -%}
        {%- do positions.update({source: row_state_positions[source]}) -%}
    {%- endfor -%}
    {%- set published = (own_watermarks.values() | list)[0] if own_watermarks else {'definition_hash': none, 'columns': [], 'view_tables': {}} -%}
    {%- set same = published.definition_hash == definition.hash and not should_full_refresh() -%}
    {%- set plan = {
        'evaluates': false, 'is_waiting': false, 'scope': 'changes', 'since': own_watermarks, 'positions': positions,
        'definition': definition, 'definition_hash': definition.hash, 'columns': published.columns, 'published_columns': published.columns,
        'is_published': published.definition_hash == definition.hash, 'is_invalidated': published.definition_hash == tidemark.invalidated_hash(),
        'is_there': is_there, 'view_tables': definition.view_tables, 'published_view_tables': published.view_tables,
    } -%}
    {%- if same and positions == tidemark.published_positions(definition.name) -%}
        {%- do plan.update({'reason': 'unchanged'}) -%}
        {{ return(plan) }}
    {%- endif -%}
    {%- set inputs = tidemark.input_state(definition, own_watermarks if same else {}) -%}
    {%- if inputs.waiting -%}
        {%- do plan.update({
            'is_waiting': true, 'reason': 'waiting for ' ~ inputs.waiting | join(', '),
            'positions': tidemark.published_positions(definition.name) if is_there else {}, 'definition_hash': published.definition_hash,
            'view_tables': published.view_tables,
        }) -%}
    {%- elif not same -%}
        {%- do plan.update({
            'evaluates': true, 'scope': 'all',
            'reason': 'new' if not own_watermarks else 'definition changed' if published.definition_hash != definition.hash else 'full refresh',
        }) -%}
    {%- elif inputs.changed -%}
        {%- do plan.update({
            'evaluates': true, 'scope': 'changes' if definition.evaluation == 'incremental' else 'all', 'reason': 'inputs changed',
        }) -%}
    {%- else -%}
        {%- do plan.update({'reason': 'inputs unchanged'}) -%}
    {%- endif -%}
    {{ return(plan) }}
{%- endmacro %}
