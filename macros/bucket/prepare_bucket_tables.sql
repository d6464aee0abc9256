{#- The op log of a definition. -#}
{% macro ops_relation(relation) -%}
    {{ return(api.Relation.create(schema=relation.schema, identifier=relation.identifier ~ '__ops')) }}
{%- endmacro %}

{#-
  Creates a definition's tables, or adds the columns that a changed definition needs. Columns that it no longer needs
  are dropped when it is published (`drop_unpublished_columns`). Returns {is_new, rewritten}: whether it was never
  published, and whether the type of a column changed, so that all rows are rewritten. Columns belong to the table,
  not to the branch: once one is dropped, the published rows match no definition (`invalidate_published`). So the
  query is evaluated before, without writing: it may fail.
-#}
{% macro prepare_bucket_tables(relation, sql, settings, columns, plan) -%}
    {%- if not plan.is_there -%}
        {%- do tidemark.create_bucket_tables(relation, columns, plan.definition.name) -%}
        {{ return({'rewritten': false, 'is_new': true}) }}
    {%- endif -%}
    {%- if not tidemark.is_bucket_table(relation, column='_key_number') -%}
        {#- Created by an earlier version of Tidemark. Rows without a number are found by their text. -#}
        {%- do run_query('alter table ' ~ relation ~ ' add column _key_number bigint') -%}
    {%- endif -%}
    {%- if plan.is_published -%}
        {{ return({'rewritten': false, 'is_new': false}) }}
    {%- endif -%}
    {%- if plan.is_invalidated -%}{%- do tidemark.set_staged(relation, true) -%}{%- endif -%}
    {%- set is_new = 'main' not in adapter.table_branches([relation | string]).get(relation | string, {}) -%}
    {%- set existing = {} -%}
    {%- for column in tidemark.describe_columns(relation) -%}
        {%- do existing.update({column.name | lower: column}) -%}
    {%- endfor -%}
    {%- set rewritten = [] -%}
    {%- set names = columns | map(attribute='name') | map('lower') | list -%}
    {%- for column in columns -%}
        {%- set interim = tidemark._interim_name(column.name) | lower -%}
        {%- set old = existing.get(column.name | lower) or (existing.get(interim) if interim not in names) -%}
        {%- if old and (old.type == column.type or tidemark._is_wider(column.type, old.type)) -%}
            {%- do tidemark._rename_column(relation, old.name, column.name) -%}
            {%- if old.type != column.type -%}
                {%- do run_query('alter table ' ~ relation ~ ' alter column ' ~ tidemark.quote_identifier(column.name) ~ ' type ' ~ column.type) -%}
            {%- endif -%}
        {%- else -%}
            {%- if old -%}
                {%- if not rewritten and not is_new -%}
                    {%- do run_query(tidemark.dry_run_evaluation(sql, settings, columns, plan)) -%}
                    {%- do adapter.invalidate_published(plan.definition.name, relation | string) -%}
                {%- endif -%}
                {%- do rewritten.append(column.name) -%}
                {%- do run_query('alter table ' ~ relation ~ ' drop column ' ~ tidemark.quote_identifier(old.name)) -%}
            {%- endif -%}
            {%- do run_query('alter table ' ~ relation ~ ' add column ' ~ tidemark.quote_identifier(column.name) ~ ' ' ~ column.type) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return({'rewritten': rewritten | length > 0 or plan.is_invalidated, 'is_new': is_new}) }}
{%- endmacro %}

{#- Spark does not rename a column to a name that differs only by upper and lower case, so this takes two steps. -#}
{% macro _rename_column(relation, old, new) -%}
    {%- if old != new -%}
        {%- set rename = 'alter table ' ~ relation ~ ' rename column ' -%}
        {%- set interim = tidemark._interim_name(new) -%}
        {%- if old != interim -%}{%- do run_query(rename ~ tidemark.quote_identifier(old) ~ ' to ' ~ tidemark.quote_identifier(interim)) -%}{%- endif -%}
        {%- do run_query(rename ~ tidemark.quote_identifier(interim) ~ ' to ' ~ tidemark.quote_identifier(new)) -%}
    {%- endif -%}
{%- endmacro %}

{#- Whether a column can be changed to a type in place, because its values are written the same way in both (Iceberg
    also promotes FLOAT, whose values are written differently as DOUBLE). -#}
{% macro _is_wider(type, old) -%}
    {%- if [old, type] == ['int', 'bigint'] -%}{{ return(true) }}{%- endif -%}
    {%- set old_decimal, new_decimal = modules.re.fullmatch('decimal\\((\\d+),(\\d+)\\)', old), modules.re.fullmatch('decimal\\((\\d+),(\\d+)\\)', type) -%}
    {{ return(old_decimal and new_decimal and old_decimal.group(2) == new_decimal.group(2) and old_decimal.group(1) | int < new_decimal.group(1) | int) }}
{%- endmacro %}

{% macro _interim_name(name) -%}
    {{ return(name ~ '__renamed') }}
{%- endmacro %}
