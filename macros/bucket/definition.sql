{#-
  What a definition is: its `hash`, over its SQL and settings, the views below it as they stand in the lake (comments and white
  space don't count), their tables and the contents of seeds, and another over what its buckets are named by, or those that a lookup
  names, which `tidemark buckets` compares; its `inputs`, the source tables below it as {source, table}; and its `view_tables`.
-#}
{% macro bucket_definition(model, sql, settings) -%}
    {%- set inputs = tidemark.definition_inputs(model) -%}
    {%- set parts = [tidemark.normalized_sql(sql), tojson(settings, sort_keys=true), tojson(inputs, sort_keys=true)] -%}
    {%- for node in tidemark.read_by(model) -%}
        {%- if node.config.materialized == 'view' -%}
            {%- do parts.append(node.unique_id ~ ':' ~ tidemark.normalized_sql(tidemark.view_text(node))) -%}
        {%- elif node.resource_type == 'seed' -%}
            {%- do parts.append(node.unique_id ~ ':' ~ tidemark.seed_contents(node)) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- set hash = local_md5(parts | join('\n')) ~ '-' ~ local_md5(tojson(settings.named_by)) -%}
    {{ return({'name': model.name, 'hash': hash, 'inputs': inputs, 'evaluation': settings.evaluation, 'view_tables': tidemark.view_tables(model)}) }}
{%- endmacro %}

{#- SQL without comments, without semicolons at its end, and with white space only where it separates words. String literals stay as
    they are. -#}
{% macro normalized_sql(sql) -%}
    {%- set literal = '(' ~ tidemark.string_literal() ~ '|`(?:[^`]|``)*`)' -%}
    {%- set gap = '(?:\\s|' ~ tidemark.comment() ~ ')+' -%}
    {%- set spaced = modules.re.sub(literal ~ '|' ~ gap, ' \\1 ', sql, flags=modules.re.DOTALL) -%}
    {#- Between two strings or quoted names a space counts. -#}
    {%- set needless = "\\s+(?=[^\\w\\s'\"`])|(?<=[^\\w\\s'\"`])\\s+|\\s+(?=\\s)" -%}
    {{ return(modules.re.sub(literal ~ '|' ~ needless, '\\1', spaced, flags=modules.re.DOTALL).strip('; ')) }}
{%- endmacro %}

{#- A comment as a regular expression without groups. A line goes on behind a backslash at its end; bracketed comments have others inside,
    unless what begins there looks like a hint. -#}
{% macro comment() -%}
    {{ return('--(?:\\\\\\n|[^\\r\\n])*|/\\*' ~ tidemark._rest_of_comment(4)) }}
{%- endmacro %}

{#- What follows the start of a bracketed comment that has so many levels of others in it. -#}
{% macro _rest_of_comment(levels) -%}
    {%- set inner = '/\\*(?!\\+)' ~ tidemark._rest_of_comment(levels - 1) ~ '|' if levels else '' -%}
    {{ return('(?:' ~ inner ~ '(?!\\*/)[\\s\\S])*\\*/') }}
{%- endmacro %}

{#- A string of SQL as a regular expression without groups; in a raw one a backslash is itself. -#}
{% macro string_literal() -%}
    {%- set raw = "(?<!\\w)[rR](?:'[^']*'|\"[^\"]*\")" -%}
    {{ return(raw ~ "|'(?:[^'\\\\]|\\\\.|'')*'|\"(?:[^\"\\\\]|\\\\.|\"\")*\"") }}
{%- endmacro %}
