{#-
  Rejects `evaluation: incremental` if a changed row can change more than its own output. Spark's analyzed plan shows
  the operators of the query, including the views below it. Allowed are one table, the filter of `rows(...)`,
  projections and filters. A row must keep the key and the checkpoint that it has in the table: its older version, and
  its changes, are found by them.
-#}
{% macro check_row_wise(sql, model) -%}
    {%- set fix = "Set evaluation: 'full', or select from one rows(...) with projections and filters only" -%}
    {%- set relative_date = tidemark._relative_date([sql] + tidemark._upstream_view_texts(model)) -%}
    {%- if relative_date -%}
        {%- do tidemark.raise_definition_error(model, "evaluation: 'incremental' with '" ~ relative_date ~ "' in the query", fix) -%}
    {%- endif -%}
    {%- set plan = tidemark._analyzed_plan(sql, model) -%}
    {%- set inputs = plan | selectattr('is_input') | list -%}
    {%- if inputs | length != 1 -%}
        {%- do tidemark.raise_definition_error(model, "evaluation: 'incremental' reads " ~ inputs | length ~ ' inputs by rows(...)', fix) -%}
    {%- endif -%}
    {%- for node in plan -%}
        {%- set violation = tidemark._row_wise_violation(node) -%}
        {%- if violation -%}
            {%- do tidemark.raise_definition_error(model, "evaluation: 'incremental' with " ~ violation ~ ' in the query', fix) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if plan | selectattr('operator', 'equalto', 'RelationV2') | list | length != 1 -%}
        {%- do tidemark.raise_definition_error(model, "evaluation: 'incremental' reads another input in addition to rows(...)", fix) -%}
    {%- endif -%}
    {%- set columns = (plan | selectattr('operator', 'equalto', 'RelationV2') | first).text -%}
    {%- set kept = {'_row_key': tidemark._unchanged_row_key(columns), '_checkpoint_id': tidemark._unchanged_checkpoint_id(columns)} -%}
    {%- for node in plan -%}
        {%- for name in kept -%}
            {%- set text = modules.re.sub(kept[name], '', node.text, flags=modules.re.IGNORECASE) -%}
            {%- if modules.re.search('( AS |^Generate .*, \\[.*\\b)' ~ name ~ '#', text, flags=modules.re.IGNORECASE) -%}
                {%- do tidemark.raise_definition_error(model, "evaluation: 'incremental' with a " ~ name ~ ' of its own in the query', fix) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}

{#- The first relative date, such as `today`, in the date literals of some texts. Spark replaces them before it shows a
    plan. -#}
{% macro _relative_date(texts) -%}
    {%- set literal = "\\b(?:date|timestamp\\w*)\\s*r?['\"]\\s*(now|today|tomorrow|yesterday)\\b" -%}
    {%- for text in texts -%}
        {%- set relative_date = modules.re.search(literal, tidemark.normalized_sql(text), flags=modules.re.IGNORECASE) -%}
        {%- if relative_date -%}{{ return(relative_date.group(1)) }}{%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{% macro _upstream_view_texts(model) -%}
    {%- set texts = [] -%}
    {%- for node in tidemark.upstream_nodes(model) if node.config.materialized == 'view' -%}
        {%- do texts.append(tidemark.deployed_view_sql(node)) -%}
    {%- endfor -%}
    {{ return(texts) }}
{%- endmacro %}

{#- How a row's `_row_key` is computed and passed on, as a regular expression: from the table's row_key, as `tidemark
    codegen` does it for tables with and without a key. Views cast what they select. -#}
{% macro _unchanged_row_key(columns) -%}
    {%- set match = modules.re.search('\\brow_key#\\d+', columns) -%}
    {%- set row_key = match.group() if match else 'row_key' -%}
    {%- set copy = '\\bif \\(\\(copy#\\d+ = 1\\)\\) ' ~ row_key ~ ' else concat\\(concat\\(' ~ row_key ~ ', #\\), cast\\(copy#\\d+ as string\\)\\)' -%}
    {{ return('(\\b_row_key#\\d+|\\bcast\\(_row_key#\\d+ as string\\)|\\b' ~ row_key ~ '|' ~ copy ~ ') AS _row_key#') }}
{%- endmacro %}

{#- The same for a row's `_checkpoint_id`. -#}
{% macro _unchanged_checkpoint_id(columns) -%}
    {%- set match = modules.re.search('\\bcheckpoint_id#\\d+L?', columns) -%}
    {%- set either = '(_checkpoint_id#\\d+L?|' ~ (match.group() if match else 'checkpoint_id') ~ ')' -%}
    {{ return('\\b(' ~ either ~ '|cast\\(' ~ either ~ ' as bigint\\)) AS _checkpoint_id#') }}
{%- endmacro %}

{#- Why a node of the plan is more than a projection or a filter: an operator or a function; none if it is not. -#}
{% macro _row_wise_violation(node) -%}
    {%- set allowed = ['Project', 'Filter', 'SubqueryAlias', 'View', 'RelationV2', 'Generate', 'WithCTE', 'CTERelationDef', 'CTERelationRef'] -%}
    {%- if node.operator not in allowed -%}
        {{ return(node.operator) }}
    {%- endif -%}
    {#- A string that Spark takes for a relative date: in any case, with leading blanks and a time zone; not a column of
        that name. -#}
    {%- set relative_date = '\\s*((?i:now|today|tomorrow|yesterday))\\b[^()#,]*' -%}
    {%- set relative_dates = [
        '\\b(?:try_)?(?:cast\\(' ~ relative_date ~ ' as (?:date|timestamp)|to_(?:date|timestamp)\\w*\\(' ~ relative_date ~ ',)',
        '\\b(?:' ~ tidemark._functions_shown_unevaluated() ~ ')\\(.*?[(,]' ~ relative_date ~ '[,)]',
        '(?:^|[ (])' ~ relative_date ~ ' [-+] INTERVAL',
    ] -%}
    {%- set varying = modules.re.search('\\b(' ~ tidemark._nondeterministic_functions() ~ ')\\(|' ~ relative_dates | join('|'), node.text) -%}
    {%- if varying -%}
        {{ return(varying.groups() | select | first) }}
    {%- endif -%}
    {%- if modules.re.search('\\b(scalar-subquery|exists|list)#\\d+ \\[', node.text) -%}
        {{ return('a subquery') }}
    {%- endif -%}
{%- endmacro %}

{#- Functions that may return different values for the same row, as a regular expression. -#}
{% macro _nondeterministic_functions() -%}
    {{ return('rand|randn|random|randstr|uniform|uuid|shuffle|current_timestamp|localtimestamp|current_date|current_time|now|monotonically_increasing_id|spark_partition_id|input_file_\\w+|aes_encrypt|reflect|try_reflect|java_method|current_user|session_user|user') }}
{%- endmacro %}

{#- Functions whose arguments Spark's plan shows as they are written, not as the dates that they are cast to. -#}
{% macro _functions_shown_unevaluated() -%}
    {{ return('between|date_?part|decode|equal_null|extract|ifnull|nullif|nvl2?|try_add|try_subtract') }}
{%- endmacro %}

{#- SQL without the quotes of strings that look like such a function: the plan shows strings without their quotes. -#}
{% macro _without_misleading_strings(sql) -%}
    {%- set misleading = "(')(?=(?:[^'\\\\]|\\\\.|'')*(?:\\b(?:" ~ tidemark._nondeterministic_functions() ~ ")\\(|#\\d))(?:[^'\\\\]|\\\\.|'')*(')" -%}
    {{ return(modules.re.sub(misleading ~ '|(' ~ tidemark.string_literal_pattern() ~ '|' ~ tidemark.comment_pattern() ~ '|`[^`]*`)', '\\1\\2\\3', sql)) }}
{%- endmacro %}

{#- Spark's analyzed plan of a query in which `rows(...)` has a filter, as [{operator, text, is_input: whether it is
    that filter}]. -#}
{% macro _analyzed_plan(sql, model) -%}
    {%- set explained = run_query('explain extended ' ~ tidemark._without_misleading_strings(sql) | replace(tidemark.changed_rows_placeholder(), 'where _checkpoint_id = -1L'))[0][0] -%}
    {%- set analyzed = explained.split('== Analyzed Logical Plan ==')[1].split('== Optimized Logical Plan ==')[0] -%}
    {%- if '`_checkpoint_id` cannot be resolved' in analyzed -%}
        {%- do tidemark.raise_definition_error(model, 'the view of rows(...) has no _checkpoint_id', 'Select _checkpoint_id in it and in the views below it') -%}
    {%- elif modules.re.search('\\.\\.\\. \\d+ more fields', analyzed) -%}
        {%- do tidemark.raise_definition_error(model, "Spark does not show the complete plan for evaluation: 'incremental'", 'Set spark.sql.debug.maxToStringFields to 100000 in profiles/profiles.yml') -%}
    {%- endif -%}
    {%- set plan = [] -%}
    {#- A line after the first that does not begin with a branch of the tree continues a string of the line before. -#}
    {%- for line in analyzed.strip().split('\n')[1:] -%}
        {%- set match = modules.re.match('[ :]*' ~ ('[+:]- ' if plan else '') ~ '((\\w+).*)', line) -%}
        {%- if not match and plan -%}
            {%- do plan[-1].update({'text': plan[-1].text ~ '\n' ~ line}) -%}
        {%- elif match -%}
            {%- set is_input = modules.re.match('Filter .*\\b_checkpoint_id#\\d+.* = -1\\)$', match.group(1)) is not none -%}
            {%- do plan.append({'operator': match.group(2), 'text': match.group(1), 'is_input': is_input}) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(plan) }}
{%- endmacro %}
