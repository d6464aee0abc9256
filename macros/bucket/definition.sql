{#-
  What a definition is: its `hash`, over its SQL and settings, the views that it reads (comments and white space don't count) and the
  contents of seeds; and its `inputs`, the source tables below it as {source, table}.
-#}
{% macro bucket_definition(model, sql, settings) -%}
    {%- set parts = [tidemark.normalized_sql(sql), tojson(settings, sort_keys=true)] -%}
    {%- set inputs = [] -%}
    {%- for unique_id in tidemark.ancestors(model.unique_id) | sort -%}
        {%- set node = graph.nodes.get(unique_id) -%}
        {%- if node and node.config.materialized == 'view' -%}
            {%- do parts.append(unique_id ~ ':' ~ tidemark.normalized_sql(node.raw_code)) -%}
            {%- if node.config.meta.get('table') -%}
                {%- do inputs.append({'source': node.config.meta.source, 'table': node.config.meta.table}) -%}
            {%- endif -%}
        {%- elif node and node.resource_type == 'seed' -%}
            {%- do parts.append(unique_id ~ ':' ~ node.checksum.checksum) -%}
        {%- elif node and node.config.materialized not in ['ledger', 'ephemeral'] -%}
            {%- do tidemark._refuse(model, "reads '" ~ node.name ~ "', which may change without its being told", 'Select from staging views, and views of them') -%}
        {%- endif -%}
    {%- endfor -%}
    {%- for parent in model.depends_on.nodes if parent.startswith('source.') -%}
        {%- do tidemark._refuse(model, 'reads ' ~ parent ~ ' itself', 'Select from staging views, and views of them') -%}
    {%- endfor -%}
    {%- if not inputs -%}
        {%- do tidemark._refuse(model, 'reads no staging view', 'Select from one: meta.source and meta.table of a view name its table') -%}
    {%- endif -%}
    {{ return({'name': model.name, 'hash': local_md5(parts | join('\n')), 'inputs': inputs, 'evaluate': settings.evaluate}) }}
{%- endmacro %}

{#- SQL without comments, and with white space only where it separates words. String literals stay as they are. -#}
{% macro normalized_sql(sql) -%}
    {%- set literal = "('(?:[^'\\\\]|\\\\.|'')*'|\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`)" -%}
    {%- set gap = '(?:\\s|--[^\\n]*|/\\*.*?\\*/)+' -%}
    {%- set spaced = modules.re.sub(literal ~ '|' ~ gap, '\\1 ', sql, flags=modules.re.DOTALL) -%}
    {{ return(modules.re.sub(literal ~ '|\\s+(?=[^\\w\\s])|(?<=[^\\w\\s])\\s+', '\\1', spaced) | trim) }}
{%- endmacro %}
