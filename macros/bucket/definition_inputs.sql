{#- The source tables below a definition, as [{source, table}]. Rejects any other input, because its changes are not
    tracked. -#}
{% macro definition_inputs(model) -%}
    {%- set inputs = [] -%}
    {%- set fix = 'Select from staging views, and views of them' -%}
    {%- for node in [model] + tidemark.upstream_nodes(model) -%}
        {%- set is_staging = node.config.materialized == 'view' and node.config.meta.get('table') -%}
        {%- if is_staging and not node.config.meta.get('source') -%}
            {%- do tidemark.raise_definition_error(model, "reads '" ~ node.name ~ "', which has meta.table, but no meta.source", 'Set meta.source to its source in sources.yml') -%}
        {%- elif is_staging -%}
            {%- set input = {'source': node.config.meta.source, 'table': node.config.meta.table} -%}
            {%- if input not in inputs -%}{%- do inputs.append(input) -%}{%- endif -%}
        {%- elif node is not sameas model and node.resource_type != 'seed' and node.config.materialized not in ['view', 'ephemeral'] -%}
            {%- do tidemark.raise_definition_error(model, "reads '" ~ node.name ~ "', whose changes are not tracked", fix) -%}
        {%- endif -%}
        {%- for parent in node.depends_on.nodes -%}
            {%- set ledger = graph.nodes.get(parent, {}) if graph.nodes.get(parent, {}).get('config', {}).get('materialized') == 'ledger' else {} -%}
            {%- if (parent.startswith('source.') and not is_staging) or (ledger and not (is_staging and ledger.name == 'row_state')) -%}
                {%- set reader = 'reads ' if node is sameas model else "reads '" ~ node.name ~ "', which reads " -%}
                {%- do tidemark.raise_definition_error(model, reader ~ (ledger.name or parent) ~ ' directly', fix) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
    {%- if not inputs and modules.re.search('(?<![\\w.])rows *\\(', model.raw_code) -%}
        {%- do tidemark.raise_definition_error(model, 'dbt does not know rows(...) without its package', 'Write tidemark.rows(...)') -%}
    {%- elif not inputs -%}
        {%- do tidemark.raise_definition_error(model, 'reads no staging view', 'Select from one: its meta.source and meta.table name its table') -%}
    {%- endif -%}
    {%- if model.config.meta.get('evaluation') == 'incremental' and inputs | length > 1 -%}
        {%- set tables = inputs | map(attribute='table') | join(', ') -%}
        {%- do tidemark.raise_definition_error(model, "evaluation: 'incremental' depends on " ~ inputs | length ~ ' tables, ' ~ tables, "Set evaluation: 'full', or ref only the view of rows(...)") -%}
    {%- endif -%}
    {{ return(inputs) }}
{%- endmacro %}

{#- The nodes that a definition reads, sorted by id: views and the nodes between them, seeds; not the models of `core`,
    nor the definition that a lookup names. -#}
{% macro upstream_nodes(model) -%}
    {%- set upstream = {} -%}
    {%- set to_visit = [model] -%}
    {%- for _ in range(graph.nodes | length) if to_visit -%}
        {%- set node = to_visit.pop() -%}
        {%- for parent in node.depends_on.nodes if parent in graph.nodes and parent not in upstream -%}
            {%- set parent_node = graph.nodes[parent] -%}
            {%- set is_looked_up = node is sameas model and tidemark.is_lookup(model) and parent_node.name == model.config.meta.get('bucket') -%}
            {%- if parent_node.config.materialized != 'ledger' and not is_looked_up -%}
                {%- do upstream.update({parent: parent_node}) -%}
                {%- do to_visit.append(parent_node) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
    {%- set nodes = [] -%}
    {%- for unique_id in upstream | sort -%}{%- do nodes.append(upstream[unique_id]) -%}{%- endfor -%}
    {{ return(nodes) }}
{%- endmacro %}
