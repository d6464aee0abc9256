{#-
  What a run does with a definition: {evaluates, is_waiting, scope, since, standing, definition_hash, columns, view_tables, is_published, reason}. `scope` is
  'changes' (the rows that changed since the mark, in `since` by source) or 'all'. One that stands still keeps its mark, and with it
  its old hash: it is evaluated, as changed, when its inputs are ready. One of whose tables somebody dropped or replaced (not `is_there`) is new.
-#}
{% macro bucket_plan(relation, definition) -%}
    {%- set row_state_standing = tidemark.standing('row_state') -%}
    {%- set is_there = tidemark.is_bucket_table(relation) and tidemark.is_built(tidemark.ops_relation(relation)) -%}
    {%- set mine = tidemark.marks().get(definition.name, {}) if is_there else {} -%}
    {%- set sources = definition.inputs | map(attribute='source') | unique | list -%}
    {%- set standing = {} -%}
    {%- for source in sources if source in row_state_standing -%}
        {%- do standing.update({source: row_state_standing[source]}) -%}
    {%- endfor -%}
    {%- set published = (mine.values() | list)[0] if mine else {'definition_hash': none, 'columns': [], 'view_tables': {}} -%}
    {%- set same = published.definition_hash == definition.hash and not should_full_refresh() -%}
    {%- set plan = {
        'evaluates': false, 'is_waiting': false, 'scope': 'changes', 'since': mine, 'standing': standing,
        'definition': definition, 'definition_hash': definition.hash, 'columns': published.columns, 'published_columns': published.columns,
        'is_published': published.definition_hash == definition.hash, 'is_torn': published.definition_hash == tidemark.torn(),
        'is_there': is_there, 'view_tables': definition.view_tables, 'published_view_tables': published.view_tables,
    } -%}
    {%- if same and standing == tidemark.published_standing(definition.name) -%}
        {%- do plan.update({'reason': 'unchanged'}) -%}
        {{ return(plan) }}
    {%- endif -%}
    {%- set inputs = tidemark.input_state(definition, mine if same else {}) -%}
    {%- if inputs.waiting -%}
        {%- do plan.update({
            'is_waiting': true, 'reason': 'waiting for ' ~ inputs.waiting | join(', '),
            'standing': tidemark.published_standing(definition.name) if is_there else {}, 'definition_hash': published.definition_hash,
            'view_tables': published.view_tables,
        }) -%}
    {%- elif not same -%}
        {%- do plan.update({
            'evaluates': true, 'scope': 'all',
            'reason': 'new' if not mine else 'definition changed' if published.definition_hash != definition.hash else 'full refresh',
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
