{#-
  Describes a definition. `hash` covers its SQL and settings, the views below it as deployed in the lake (without
  comments and white space), their tables and the contents of seeds. Its second part covers only the columns that name
  the buckets (of a lookup: the buckets that it names); `tidemark buckets` compares it. `inputs`: the source tables
  below it as {source, table}. `view_tables`: see `view_tables`.
-#}
{% macro bucket_definition(model, sql, settings) -%}
    {%- set inputs = tidemark.definition_inputs(model) -%}
    {%- set parts = [tidemark.normalized_sql(sql), tojson(settings, sort_keys=true), tojson(inputs, sort_keys=true)] -%}
    {%- for node in tidemark.upstream_nodes(model) -%}
        {%- if node.config.materialized == 'view' -%}
            {%- do parts.append(node.unique_id ~ ':' ~ tidemark.normalized_sql(tidemark.deployed_view_sql(node))) -%}
        {%- elif node.resource_type == 'seed' -%}
            {%- do parts.append(node.unique_id ~ ':' ~ tidemark.seed_digest(node)) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- set hash = local_md5(parts | join('\n')) ~ '-' ~ local_md5(tojson(settings.named_by)) -%}
    {{ return({'name': model.name, 'hash': hash, 'inputs': inputs, 'evaluation': settings.evaluation, 'view_tables': tidemark.view_tables(model)}) }}
{%- endmacro %}

{#- SQL without comments, without semicolons at its end, and with white space only where it separates words. String
    literals are not changed. -#}
{% macro normalized_sql(sql) -%}
    {%- set literal = '(' ~ tidemark.string_literal_pattern() ~ '|`(?:[^`]|``)*`)' -%}
    {%- set gap = '(?:\\s|' ~ tidemark.comment_pattern() ~ ')+' -%}
    {%- set spaced = modules.re.sub(literal ~ '|' ~ gap, ' \\1 ', sql, flags=modules.re.DOTALL) -%}
    {#- A space between two strings or quoted names is significant. -#}
    {%- set needless = "\\s+(?=[^\\w\\s'\"`])|(?<=[^\\w\\s'\"`])\\s+|\\s+(?=\\s)" -%}
    {{ return(modules.re.sub(literal ~ '|' ~ needless, '\\1', spaced, flags=modules.re.DOTALL).strip('; ')) }}
{%- endmacro %}

{#- A comment as a regular expression without groups. A line comment continues after a backslash at its end. Bracketed
    comments can be nested, unless the inner one looks like a hint. -#}
{% macro comment_pattern() -%}
    {{ return('--(?:\\\\\\n|[^\\r\\n])*|/\\*' ~ tidemark._comment_rest_pattern(4)) }}
{%- endmacro %}

{#- The rest of a bracketed comment, after its start, with up to `levels` nested comments. -#}
{% macro _comment_rest_pattern(levels) -%}
    {%- set inner = '/\\*(?!\\+)' ~ tidemark._comment_rest_pattern(levels - 1) ~ '|' if levels else '' -%}
    {{ return('(?:' ~ inner ~ '(?!\\*/)[\\s\\S])*\\*/') }}
{%- endmacro %}

{#- A SQL string as a regular expression without groups. In a raw string a backslash is an ordinary character. -#}
{% macro string_literal_pattern() -%}
    {%- set raw = "(?<!\\w)[rR](?:'[^']*'|\"[^\"]*\")" -%}
    {{ return(raw ~ "|'(?:[^'\\\\]|\\\\.|'')*'|\"(?:[^\"\\\\]|\\\\.|\"\")*\"") }}
{%- endmacro %}
