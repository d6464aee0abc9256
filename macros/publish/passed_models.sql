{#-
  The models of ours that a run may publish, as {name, unique_id, tables, report}: those that succeeded, whose data
  tests passed, all that were to run, and of whose ancestors the same is true.
-#}
{% macro passed_models(results) -%}
    {%- set bad = [] -%}
    {%- for result in results -%}
        {%- if result.node.resource_type == 'model' and result.status | string != 'success' -%}
            {%- do bad.append(result.node.unique_id) -%}
        {%- elif result.node.resource_type in ['test', 'unit_test'] and result.status | string not in ['pass', 'warn'] -%}
            {%- do bad.extend(tidemark._tested_by(result.node)) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- set done = results | map(attribute='node.unique_id') | list -%}
    {%- for unique_id in selected_resources if unique_id.startswith('test.') and unique_id not in done -%}
        {%- do bad.extend(tidemark._tested_by(graph.nodes[unique_id])) -%}
    {%- endfor -%}
    {%- set passed = [] -%}
    {%- for result in results if tidemark.is_staged_model(result.node) and result.status | string == 'success' -%}
        {%- set ancestors = tidemark.ancestors(result.node.unique_id) -%}
        {%- if not (ancestors + [result.node.unique_id]) | select('in', bad) | list -%}
            {%- do passed.append({
                'name': result.node.name,
                'unique_id': result.node.unique_id,
                'tables': tidemark.tables_of(result.node),
                'report': fromjson(result.adapter_response['code']),
            }) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(passed) }}
{%- endmacro %}

{#- Which nodes a test speaks of: those that it reads, but for what stands below another of them. A test that a bucket's rows have
    a customer is one of the bucket, not of the view of customers. -#}
{% macro _tested_by(test) -%}
    {%- set below = [] -%}
    {%- for parent in test.depends_on.nodes -%}
        {%- do below.extend(tidemark.ancestors(parent)) -%}
    {%- endfor -%}
    {{ return(test.depends_on.nodes | reject('in', below) | list) }}
{%- endmacro %}

{#- Whether a node is a model whose tables are staged and published here. -#}
{% macro is_staged_model(node) -%}
    {{ return(
        node.resource_type == 'model'
        and (node.config.materialized == 'ledger' or tidemark.is_definition(node))
        and node.name not in ['model_watermarks', 'releases', 'model_states']
    ) }}
{%- endmacro %}

{#- The tables of a model: its own, and a bucket's op log. -#}
{% macro tables_of(node) -%}
    {%- set tables = [node.schema ~ '.' ~ node.alias] -%}
    {%- if tidemark.is_definition(node) -%}
        {%- do tables.append(tables[0] ~ '__ops') -%}
    {%- endif -%}
    {{ return(tables) }}
{%- endmacro %}

{#- All that a node depends on, directly or not. -#}
{% macro ancestors(unique_id) -%}
    {%- set found = [] -%}
    {%- set node = graph.nodes.get(unique_id) -%}
    {%- for parent in (node.depends_on.nodes if node else []) if parent not in found -%}
        {%- do found.append(parent) -%}
        {%- for ancestor in tidemark.ancestors(parent) if ancestor not in found -%}
            {%- do found.append(ancestor) -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(found) }}
{%- endmacro %}

{#- Whether a model has come further than its mark, or has another definition. -#}
{% macro has_moved(model, marks) -%}
    {%- set mine = marks.get(model.name, {}) -%}
    {%- for source, at in model.report.standing.items() -%}
        {%- set mark = mine.get(source, {}) -%}
        {%- if mark.get('checkpoint_id') != at.checkpoint_id or mark.get('definition_hash') != model.report.definition_hash -%}
            {{ return(true) }}
        {%- endif -%}
    {%- endfor -%}
    {{ return(false) }}
{%- endmacro %}
