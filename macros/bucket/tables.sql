{#- The op log of a definition. -#}
{% macro ops_relation(relation) -%}
    {{ return(api.Relation.create(schema=relation.schema, identifier=relation.identifier ~ '__ops')) }}
{%- endmacro %}

{#-
  Creates a definition's tables, or gives the rows the columns that a changed definition needs; those that it no longer
  needs go when it is published (`drop_unpublished_columns`). Returns {is_new, rewritten}: whether it was never published, and
  whether a column changed its type, so that all rows are written anew.
-#}
{% macro prepare_bucket_tables(relation, columns, plan) -%}
    {%- if not tidemark.is_built(relation) or not tidemark.is_built(tidemark.ops_relation(relation)) -%}
        {%- do run_query(tidemark._create_rows_table(relation, columns)) -%}
        {%- do run_query(tidemark._create_ops_table(tidemark.ops_relation(relation))) -%}
        {%- do adapter.cache_added(relation) -%}
        {%- do adapter.cache_added(tidemark.ops_relation(relation)) -%}
        {{ return({'rewritten': false, 'is_new': true}) }}
    {%- endif -%}
    {%- if plan.is_published -%}
        {{ return({'rewritten': false, 'is_new': false}) }}
    {%- endif -%}
    {%- set is_new = 'main' not in tidemark.refs([relation]).get(relation | string, {}) -%}
    {%- set has = {} -%}
    {%- for row in run_query('describe ' ~ relation) if row['col_name'] and not row['col_name'].startswith('#') -%}
        {%- do has.update({row['col_name']: row['data_type']}) -%}
    {%- endfor -%}
    {%- set rewritten = [] -%}
    {%- for column in columns if has.get(column.name) != column.type -%}
        {%- if column.name in has -%}
            {%- if not rewritten and not is_new -%}
                {%- do tidemark._mark_as_torn(plan.definition.name) -%}
            {%- endif -%}
            {%- do rewritten.append(column.name) -%}
            {%- do run_query('alter table ' ~ relation ~ ' drop column ' ~ tidemark.quoted(column.name)) -%}
        {%- endif -%}
        {%- do run_query('alter table ' ~ relation ~ ' add column ' ~ tidemark.quoted(column.name) ~ ' ' ~ column.type) -%}
    {%- endfor -%}
    {{ return({'rewritten': rewritten | length > 0 or plan.is_torn, 'is_new': is_new}) }}
{%- endmacro %}

{#- In place of a definition's hash: the rows lack a column's values, until a run has written all of them anew. -#}
{% macro torn() -%}
    {{ return('torn') }}
{%- endmacro %}

{#- Columns are the table's, not the branch's: once one is dropped, the published rows are of no definition. -#}
{% macro _mark_as_torn(name) -%}
    {%- set progress = tidemark.core_relation('progress') -%}
    {%- do run_query("update " ~ progress ~ " set definition_hash = '" ~ tidemark.torn() ~ "' where model = " ~ tidemark.literal(name)) -%}
{%- endmacro %}

{% macro _create_rows_table(relation, columns) -%}
    create table if not exists {{ relation }} (
        bucket string comment 'definition and bucket_by values: <definition>[<JSON array>]',
        object_type string,
        object_id string,
        row_key string comment 'key of the row that the object came from',
        {%- for column in columns %}
        {{ tidemark.quoted(column.name) }} {{ column.type }},
        {%- endfor %}
        _op_id bigint comment 'the op that wrote the row',
        _replaces bigint comment 'the op that wrote the row whose place it took',
        _digest binary comment 'first 16 bytes of the SHA-256 that the checksum is of: tells whether the data are the same',
        _checksum bigint comment 'of that op, unsigned 32 bits',
        _checkpoint_id bigint comment 'the checkpoint that the row was written at'
    )
    {{ tidemark.iceberg_table() }}
{%- endmacro %}

{% macro _create_ops_table(relation) -%}
    create table if not exists {{ relation }} (
        bucket string,
        op_id bigint comment 'strictly increasing per definition, never used again',
        op string comment 'PUT, REMOVE, MOVE or CLEAR',
        object_type string,
        object_id string,
        row_key string,
        data string comment 'JSON of the columns, by name',
        checksum bigint,
        target_op bigint comment 'of a MOVE: the op that supersedes it',
        checkpoint_id bigint
    )
    {{ tidemark.iceberg_table() }}
{%- endmacro %}

{#- Drops from the rows of a published definition the columns that it does not bring. -#}
{% macro drop_unpublished_columns(table, columns) -%}
    {%- for row in run_query('describe ' ~ table) if row['col_name'] and not row['col_name'].startswith('#') -%}
        {%- if row['col_name'] not in columns + tidemark.own_columns() -%}
            {%- do run_query('alter table ' ~ table ~ ' drop column ' ~ tidemark.quoted(row['col_name'])) -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}
