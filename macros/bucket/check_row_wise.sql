{#-
  Refuses `evaluation: incremental` where a changed row can change more than its own output. Spark itself says what the query is
  made of, views below it included: from one table, through the filter of `rows(...)`, projections and filters, nothing
  else; and a row keeps the key and the checkpoint that it has in the table, by which its older version, and its changes, are found.
-#}
{% macro check_row_wise(sql, model) -%}
    {%- set fix = "Set evaluation: 'full', or select from one rows(...) with projections and filters only" -%}
    {%- set moment = tidemark._named_moment([sql] + tidemark._views_read_by(model)) -%}
    {%- if moment -%}
        {%- do tidemark._refuse(model, "evaluation: 'incremental' with '" ~ moment ~ "' in the query", fix) -%}
    {%- endif -%}
    {%- set plan = tidemark._analyzed_plan(sql, model) -%}
    {%- set inputs = plan | selectattr('is_input') | list -%}
    {%- if inputs | length != 1 -%}
        {%- do tidemark._refuse(model, "evaluation: 'incremental' reads " ~ inputs | length ~ ' inputs by rows(...)', fix) -%}
    {%- endif -%}
    {%- for node in plan -%}
        {%- set found = tidemark._not_row_wise(node) -%}
        {%- if found -%}
            {%- do tidemark._refuse(model, "evaluation: 'incremental' with " ~ found ~ ' in the query', fix) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if plan | selectattr('operator', 'equalto', 'RelationV2') | list | length != 1 -%}
        {%- do tidemark._refuse(model, "evaluation: 'incremental' reads another input beside rows(...)", fix) -%}
    {%- endif -%}
    {%- set columns = (plan | selectattr('operator', 'equalto', 'RelationV2') | first).text -%}
    {%- set kept = {'_row_key': tidemark._kept_row_key(columns), '_checkpoint_id': tidemark._kept_checkpoint_id(columns)} -%}
    {%- for node in plan -%}
        {%- for name in kept -%}
            {%- set text = modules.re.sub(kept[name], '', node.text, flags=modules.re.IGNORECASE) -%}
            {%- if modules.re.search('( AS |^Generate .*, \\[.*\\b)' ~ name ~ '#', text, flags=modules.re.IGNORECASE) -%}
                {%- do tidemark._refuse(model, "evaluation: 'incremental' with a " ~ name ~ ' of its own in the query', fix) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}

{#- The first moment, such as `today`, that a literal of texts names. Spark puts it in their place before it shows a plan. -#}
{% macro _named_moment(texts) -%}
    {%- set literal = "\\b(?:date|timestamp\\w*)\\s*r?['\"]\\s*(now|today|tomorrow|yesterday)\\b" -%}
    {%- for text in texts -%}
        {%- set moment = modules.re.search(literal, tidemark.normalized_sql(text), flags=modules.re.IGNORECASE) -%}
        {%- if moment -%}{{ return(moment.group(1)) }}{%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{% macro _views_read_by(model) -%}
    {%- set texts = [] -%}
    {%- for node in tidemark.read_by(model) if node.config.materialized == 'view' -%}
        {%- do texts.append(tidemark.view_text(node)) -%}
    {%- endfor -%}
    {{ return(texts) }}
{%- endmacro %}

{#- How a row's `_row_key` is made and handed on, as a regular expression: of the row_key among the table's columns, as `tidemark codegen`
    does it with a key and without. Views cast what they select. -#}
{% macro _kept_row_key(columns) -%}
    {%- set found = modules.re.search('\\brow_key#\\d+', columns) -%}
    {%- set row_key = found.group() if found else 'row_key' -%}
    {%- set copy = '\\bif \\(\\(copy#\\d+ = 1\\)\\) ' ~ row_key ~ ' else concat\\(concat\\(' ~ row_key ~ ', #\\), cast\\(copy#\\d+ as string\\)\\)' -%}
    {{ return('(\\b_row_key#\\d+|\\bcast\\(_row_key#\\d+ as string\\)|\\b' ~ row_key ~ '|' ~ copy ~ ') AS _row_key#') }}
{%- endmacro %}

{#- The same of a row's `_checkpoint_id`. -#}
{% macro _kept_checkpoint_id(columns) -%}
    {%- set found = modules.re.search('\\bcheckpoint_id#\\d+L?', columns) -%}
    {%- set either = '(_checkpoint_id#\\d+L?|' ~ (found.group() if found else 'checkpoint_id') ~ ')' -%}
    {{ return('\\b(' ~ either ~ '|cast\\(' ~ either ~ ' as bigint\\)) AS _checkpoint_id#') }}
{%- endmacro %}

{#- What of a node of the plan is more than a projection or a filter, in a word; none, if nothing is. -#}
{% macro _not_row_wise(node) -%}
    {%- set allowed = ['Project', 'Filter', 'SubqueryAlias', 'View', 'RelationV2', 'Generate', 'WithCTE', 'CTERelationDef', 'CTERelationRef'] -%}
    {%- if node.operator not in allowed -%}
        {{ return(node.operator) }}
    {%- endif -%}
    {#- A string that is a moment to Spark, in any case, with blanks before it and a zone behind; not a column of that name. -#}
    {%- set moment = '\\s*((?i:now|today|tomorrow|yesterday))\\b[^()#,]*' -%}
    {%- set moments = [
        '\\b(?:try_)?(?:cast\\(' ~ moment ~ ' as (?:date|timestamp)|to_(?:date|timestamp)\\w*\\(' ~ moment ~ ',)',
        '\\b(?:' ~ tidemark._shown_as_written() ~ ')\\(.*?[(,]' ~ moment ~ '[,)]',
        '(?:^|[ (])' ~ moment ~ ' [-+] INTERVAL',
    ] -%}
    {%- set varying = modules.re.search('\\b(' ~ tidemark._varying() ~ ')\\(|' ~ moments | join('|'), node.text) -%}
    {%- if varying -%}
        {{ return(varying.groups() | select | first) }}
    {%- endif -%}
    {%- if modules.re.search('\\b(scalar-subquery|exists|list)#\\d+ \\[', node.text) -%}
        {{ return('a subquery') }}
    {%- endif -%}
{%- endmacro %}

{#- Functions that give something else for the same row, as a regular expression. -#}
{% macro _varying() -%}
    {{ return('rand|randn|random|randstr|uniform|uuid|shuffle|current_timestamp|localtimestamp|current_date|current_time|now|monotonically_increasing_id|spark_partition_id|input_file_\\w+|aes_encrypt|reflect|try_reflect|java_method|current_user|session_user|user') }}
{%- endmacro %}

{#- Functions that Spark's plan shows with the arguments as they are written, not as the dates that it makes of them. -#}
{% macro _shown_as_written() -%}
    {{ return('between|date_?part|decode|equal_null|extract|ifnull|nullif|nvl2?|try_add|try_subtract') }}
{%- endmacro %}

{#- SQL without the strings in which something like such a function stands: the plan shows strings without their quotes. -#}
{% macro _without_misleading_strings(sql) -%}
    {%- set misleading = "(')(?=(?:[^'\\\\]|\\\\.|'')*(?:\\b(?:" ~ tidemark._varying() ~ ")\\(|#\\d))(?:[^'\\\\]|\\\\.|'')*(')" -%}
    {{ return(modules.re.sub(misleading ~ '|(' ~ tidemark.string_literal() ~ '|' ~ tidemark.comment() ~ '|`[^`]*`)', '\\1\\2\\3', sql)) }}
{%- endmacro %}

{#- Spark's analyzed plan of a query in which `rows(...)` has a filter, as [{operator, text, is_input: whether it is that filter}]. -#}
{% macro _analyzed_plan(sql, model) -%}
    {%- set explained = run_query('explain extended ' ~ tidemark._without_misleading_strings(sql) | replace(tidemark.changed_rows_mark(), 'where _checkpoint_id = -1L'))[0][0] -%}
    {%- set analyzed = explained.split('== Analyzed Logical Plan ==')[1].split('== Optimized Logical Plan ==')[0] -%}
    {%- if '`_checkpoint_id` cannot be resolved' in analyzed -%}
        {%- do tidemark._refuse(model, 'the view of rows(...) has no _checkpoint_id', 'Let it, and the views below it, select _checkpoint_id') -%}
    {%- elif modules.re.search('\\.\\.\\. \\d+ more fields', analyzed) -%}
        {%- do tidemark._refuse(model, "Spark does not show all of evaluation: 'incremental'", 'Set spark.sql.debug.maxToStringFields to 100000 in profiles/profiles.yml') -%}
    {%- endif -%}
    {%- set plan = [] -%}
    {#- Lines but the first that begin without a branch of the tree go on with a string of the line before. -#}
    {%- for line in analyzed.strip().split('\n')[1:] -%}
        {%- set found = modules.re.match('[ :]*' ~ ('[+:]- ' if plan else '') ~ '((\\w+).*)', line) -%}
        {%- if not found and plan -%}
            {%- do plan[-1].update({'text': plan[-1].text ~ '\n' ~ line}) -%}
        {%- elif found -%}
            {%- set is_input = modules.re.match('Filter .*\\b_checkpoint_id#\\d+.* = -1\\)$', found.group(1)) is not none -%}
            {%- do plan.append({'operator': found.group(2), 'text': found.group(1), 'is_input': is_input}) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(plan) }}
{%- endmacro %}
