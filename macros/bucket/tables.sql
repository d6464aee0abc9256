{#- The op log of a definition. -#}
{% macro ops_relation(relation) -%}
    {{ return(api.Relation.create(schema=relation.schema, identifier=relation.identifier ~ '__ops')) }}
{%- endmacro %}

{#-
  Creates a definition's tables, or gives the rows the columns that a changed definition needs; those that it no longer
  needs go when it is published (`drop_unpublished_columns`). Returns {is_new, rewritten}: whether it was never published, and
  whether a column changed its type, so that all rows are written anew. Columns are the table's, not the branch's: once one
  is dropped, the published rows are of no definition (`tear`), so before that the query is evaluated for nothing, and may fail.
-#}
{% macro prepare_bucket_tables(relation, sql, settings, columns, plan) -%}
    {%- if not plan.is_there -%}
        {%- do tidemark._create_tables(relation, columns, plan.definition.name) -%}
        {{ return({'rewritten': false, 'is_new': true}) }}
    {%- endif -%}
    {%- if not tidemark.is_bucket_table(relation, column='_key_number') -%}
        {#- Made by an earlier Tidemark. Rows without a number are found by their text. -#}
        {%- do run_query('alter table ' ~ relation ~ ' add column _key_number bigint') -%}
    {%- endif -%}
    {%- if plan.is_published -%}
        {{ return({'rewritten': false, 'is_new': false}) }}
    {%- endif -%}
    {%- if plan.is_torn -%}{%- do tidemark.set_staged(relation, true) -%}{%- endif -%}
    {%- set is_new = 'main' not in tidemark.refs([relation]).get(relation | string, {}) -%}
    {%- set has = {} -%}
    {%- for column in tidemark._described(relation) -%}
        {%- do has.update({column.name | lower: column}) -%}
    {%- endfor -%}
    {%- set rewritten = [] -%}
    {%- set names = columns | map(attribute='name') | map('lower') | list -%}
    {%- for column in columns -%}
        {%- set between = tidemark._while_renamed(column.name) | lower -%}
        {%- set old = has.get(column.name | lower) or (has.get(between) if between not in names) -%}
        {%- if old and (old.type == column.type or tidemark._is_wider(column.type, old.type)) -%}
            {%- do tidemark._rename_column(relation, old.name, column.name) -%}
            {%- if old.type != column.type -%}
                {%- do run_query('alter table ' ~ relation ~ ' alter column ' ~ tidemark.quoted(column.name) ~ ' type ' ~ column.type) -%}
            {%- endif -%}
        {%- else -%}
            {%- if old -%}
                {%- if not rewritten and not is_new -%}
                    {%- do run_query(tidemark.evaluation(sql, settings, columns, plan)) -%}
                    {%- do tidemark.tear(plan.definition.name, relation) -%}
                {%- endif -%}
                {%- do rewritten.append(column.name) -%}
                {%- do run_query('alter table ' ~ relation ~ ' drop column ' ~ tidemark.quoted(old.name)) -%}
            {%- endif -%}
            {%- do run_query('alter table ' ~ relation ~ ' add column ' ~ tidemark.quoted(column.name) ~ ' ' ~ column.type) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return({'rewritten': rewritten | length > 0 or plan.is_torn, 'is_new': is_new}) }}
{%- endmacro %}

{#- Spark renames no column to a name that differs by upper and lower case alone, so in two steps. -#}
{% macro _rename_column(relation, old, new) -%}
    {%- if old != new -%}
        {%- set rename = 'alter table ' ~ relation ~ ' rename column ' -%}
        {%- set between = tidemark._while_renamed(new) -%}
        {%- if old != between -%}{%- do run_query(rename ~ tidemark.quoted(old) ~ ' to ' ~ tidemark.quoted(between)) -%}{%- endif -%}
        {%- do run_query(rename ~ tidemark.quoted(between) ~ ' to ' ~ tidemark.quoted(new)) -%}
    {%- endif -%}
{%- endmacro %}

{#- Whether a column can be given a type as it stands, its values being written alike in both (Iceberg promotes FLOAT too, whose
    values are others as DOUBLE). -#}
{% macro _is_wider(type, old) -%}
    {%- if [old, type] == ['int', 'bigint'] -%}{{ return(true) }}{%- endif -%}
    {%- set was, now = modules.re.fullmatch('decimal\\((\\d+),(\\d+)\\)', old), modules.re.fullmatch('decimal\\((\\d+),(\\d+)\\)', type) -%}
    {{ return(was and now and was.group(2) == now.group(2) and was.group(1) | int < now.group(1) | int) }}
{%- endmacro %}

{% macro _while_renamed(name) -%}
    {{ return(name ~ '__renamed') }}
{%- endmacro %}

{#- Whether a definition's rows had more columns than it brings when the run began, as dbt knows without asking: an edit that was taken
    back before it was published has left them. -#}
{% macro has_more_columns(table, columns) -%}
    {%- set schema, name = table.split('.') -%}
    {%- set found = load_relation(api.Relation.create(schema=schema, identifier=name)) -%}
    {#- A line each, up to an empty one. One without columns is no definition, or torn. -#}
    {%- set lines = ((found.information if found else none) or '').split('\n: ')[0].splitlines() -%}
    {{ return(columns | length > 0 and lines | length > (columns + tidemark.own_columns()) | length) }}
{%- endmacro %}

{#- Drops from the rows of a published definition the columns that it does not bring. -#}
{% macro drop_unpublished_columns(table, columns) -%}
    {%- set kept = (columns + tidemark.own_columns()) | map('lower') | list -%}
    {%- for column in tidemark._described(table) if column.name | lower not in kept -%}
        {%- do run_query('alter table ' ~ table ~ ' drop column ' ~ tidemark.quoted(column.name)) -%}
    {%- endfor -%}
{%- endmacro %}
