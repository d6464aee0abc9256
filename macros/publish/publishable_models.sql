{#-
  The models of Tidemark that a run may publish, as {name, unique_id, tables, report}: those that succeeded, whose
  data tests all ran and passed, and whose ancestors meet the same conditions.
-#}
{% macro publishable_models(results) -%}
    {%- set failed = [] -%}
    {%- for result in results -%}
        {%- if result.node.resource_type == 'model' and result.status | string != 'success' -%}
            {%- do failed.append(result.node.unique_id) -%}
        {%- elif result.node.resource_type in ['test', 'unit_test'] and result.status | string not in ['pass', 'warn'] -%}
            {%- do failed.extend(tidemark._tested_nodes(result.node)) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- set run_nodes = results | map(attribute='node.unique_id') | list -%}
    {%- for unique_id in selected_resources if unique_id.startswith('test.') and unique_id not in run_nodes -%}
        {%- do failed.extend(tidemark._tested_nodes(graph.nodes[unique_id])) -%}
    {%- endfor -%}
    {%- set passed = [] -%}
    {%- for result in results if tidemark.is_staged_model(result.node) and result.status | string == 'success' -%}
        {%- set ancestors = tidemark.ancestors(result.node.unique_id) -%}
        {%- if not (ancestors + [result.node.unique_id]) | select('in', failed) | list -%}
            {%- do passed.append({
                'name': result.node.name,
                'unique_id': result.node.unique_id,
                'tables': tidemark.model_tables(result.node),
                'report': fromjson(result.adapter_response['code']),
            }) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(passed) }}
{%- endmacro %}

{#- The nodes that a test tests: those that it reads, except ancestors of another of them. A test that a bucket's rows
    have a customer tests the bucket, not the view of customers. -#}
{% macro _tested_nodes(test) -%}
    {%- set covered = [] -%}
    {%- for parent in test.depends_on.nodes -%}
        {%- do covered.extend(tidemark.ancestors(parent)) -%}
    {%- endfor -%}
    {{ return(test.depends_on.nodes | reject('in', covered) | list) }}
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
{% macro model_tables(node) -%}
    {%- set tables = [node.schema ~ '.' ~ node.alias] -%}
    {%- if tidemark.is_definition(node) -%}
        {%- do tables.append(tables[0] ~ '__ops') -%}
    {%- endif -%}
    {{ return(tables) }}
{%- endmacro %}

{#- All nodes that a node depends on, directly or not. -#}
{% macro ancestors(unique_id) -%}
    {%- set ancestor_ids = [] -%}
    {%- set node = graph.nodes.get(unique_id) -%}
    {%- for parent in (node.depends_on.nodes if node else []) if parent not in ancestor_ids -%}
        {%- do ancestor_ids.append(parent) -%}
        {%- for ancestor in tidemark.ancestors(parent) if ancestor not in ancestor_ids -%}
            {%- do ancestor_ids.append(ancestor) -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(ancestor_ids) }}
{%- endmacro %}

{#- Whether a model has advanced past its watermark, or its definition has changed. -#}
{% macro has_advanced(model, watermarks) -%}
    {%- set own_watermarks = watermarks.get(model.name, {}) -%}
    {%- for source, point in model.report.positions.items() -%}
        {%- set watermark = own_watermarks.get(source, {}) -%}
        {%- if watermark.get('checkpoint_id') != point.checkpoint_id or watermark.get('definition_hash') != model.report.definition_hash -%}
            {{ return(true) }}
        {%- endif -%}
    {%- endfor -%}
    {{ return(false) }}
{%- endmacro %}
