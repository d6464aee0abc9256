{#-
  Refuses `evaluate: rows` where a changed row can change more than its own output. Spark itself says what the query is
  made of, views below it included: from one `rows(...)`, projections and filters, nothing else.
-#}
{% macro check_row_wise(sql, model) -%}
    {%- set fix = "Set evaluate: 'whole', or select from one rows(...) with projections and filters only" -%}
    {%- if sql.count(tidemark.changed_rows_mark()) != 1 -%}
        {%- do tidemark._refuse(model, "evaluate: 'rows' reads " ~ sql.count(tidemark.changed_rows_mark()) ~ ' inputs by rows(...)', fix) -%}
    {%- endif -%}
    {%- set explained = run_query('explain extended ' ~ sql)[0][0] -%}
    {%- set analyzed = explained.split('== Analyzed Logical Plan ==')[1].split('== Optimized Logical Plan ==')[0] -%}
    {%- set allowed = ['Project', 'Filter', 'SubqueryAlias', 'View', 'RelationV2', 'Generate', 'WithCTE', 'CTERelationDef', 'CTERelationRef'] -%}
    {%- for line in analyzed.strip().split('\n')[1:] -%}
        {%- set operator = modules.re.match('[\\s:+|-]*(\\w+)', line) -%}
        {%- if operator and operator.group(1) not in allowed -%}
            {%- do tidemark._refuse(model, "evaluate: 'rows' with " ~ operator.group(1) ~ ' in the query', fix) -%}
        {%- endif -%}
        {%- set varying = '\\b(rand|randn|random|randstr|uniform|uuid|shuffle|current_timestamp|localtimestamp|current_date|current_time|now|monotonically_increasing_id)\\(' -%}
        {%- set subquery = '\\b(scalar-subquery|exists|list)#\\d+ \\[' -%}
        {%- set found = modules.re.search(varying ~ '|' ~ subquery, line) -%}
        {%- if found -%}
            {%- do tidemark._refuse(model, "evaluate: 'rows' with " ~ (found.group(1) or 'a subquery') ~ ' in the query', fix) -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}
