{#- Both anew. Of a definition that was published one or both have been dropped, or the rows replaced by another kind of model: the rows
    and the log are only right together. Of one that was not, a run that was killed, of another text, may have made one. -#}
{% macro _create_tables(relation, columns, definition) -%}
    {%- set ops = tidemark.ops_relation(relation) -%}
    {%- if definition in tidemark.marks() -%}
        {%- set last_op = tidemark._known_last_op(relation) -%}
        {%- do tidemark.tear(definition, relation, tidemark.dropped_tables(definition, relation, last_op)) -%}
    {%- endif -%}
    {%- do tidemark.drop_whatever(relation) -%}
    {%- do tidemark.drop_whatever(ops) -%}
    {%- do run_query(tidemark._create_rows_table(relation, columns)) -%}
    {%- do run_query(tidemark._create_ops_table(ops)) -%}
    {%- do adapter.cache_added(relation) -%}
    {%- do adapter.cache_added(ops) -%}
{%- endmacro %}

{#- The last op that a definition's tables know of; either may be gone. -#}
{% macro _known_last_op(relation) -%}
    {%- set in_log = tidemark.highest(tidemark.ops_relation(relation), 'op_id') -%}
    {%- set in_rows = tidemark.highest(relation, '_op_id') if tidemark.is_bucket_table(relation) else 0 -%}
    {{ return([in_log, in_rows] | max) }}
{%- endmacro %}

{% macro _create_rows_table(relation, columns) -%}
    create table {{ relation }} (
        bucket string comment 'definition and bucket_by values: <definition>[<JSON array>]',
        object_type string,
        object_id string,
        row_key string comment 'key of the row that the object came from',
        {%- for column in columns %}
        {{ tidemark.quoted(column.name) }} {{ column.type }},
        {%- endfor %}
        _key_number bigint comment 'row_key, if it is a single whole number: rows are found by it in half of the time',
        _op_id bigint comment 'the op that wrote the row',
        _replaces bigint comment 'the op that wrote the row whose place it took',
        _digest_high bigint comment 'first 8 bytes of the SHA-256 that the checksum is of: with the next, tells whether the data are the same',
        _digest_low bigint comment 'its next 8 bytes',
        _checksum bigint comment 'of that op, unsigned 32 bits',
        _checkpoint_id bigint comment 'the checkpoint that the row was written at'
    )
    {{ tidemark.iceberg_table() }}
{%- endmacro %}

{% macro _create_ops_table(relation) -%}
    create table {{ relation }} (
        bucket string,
        op_id bigint comment 'strictly increasing per definition, never used again',
        op string comment 'PUT, REMOVE, MOVE or CLEAR',
        object_type string,
        object_id string,
        row_key string,
        data string comment 'JSON of the columns, by name',
        checksum bigint,
        superseded_by bigint comment 'of a MOVE: the op that supersedes it',
        checkpoint_id bigint
    )
    {{ tidemark.iceberg_table() }}
{%- endmacro %}
