{#- Creates the rows and the log of a definition, and drops what is left of them: they are only valid together. If the
    definition was published, one or both were dropped, or the rows were replaced by another kind of model. If it was
    not, a killed run with another version of the definition may have created one. -#}
{% macro create_bucket_tables(relation, columns, definition) -%}
    {%- set ops = tidemark.ops_relation(relation) -%}
    {%- if definition in tidemark.watermarks() -%}
        {%- set last_op = tidemark.known_last_op(relation) -%}
        {%- do adapter.invalidate_published(definition, relation | string, last_op, dropped=true) -%}
    {%- endif -%}
    {%- do tidemark.drop_table_or_view(relation) -%}
    {%- do tidemark.drop_table_or_view(ops) -%}
    {%- do run_query(tidemark._create_rows_table(relation, columns)) -%}
    {%- do run_query(tidemark._create_ops_table(ops)) -%}
    {%- do adapter.cache_added(relation) -%}
    {%- do adapter.cache_added(ops) -%}
{%- endmacro %}

{#- The last op that a definition's tables contain; either table may be missing. -#}
{% macro known_last_op(relation) -%}
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
        {{ tidemark.quote_identifier(column.name) }} {{ column.type }},
        {%- endfor %}
        _key_number bigint comment 'row_key, if it is a single integer: rows are found by it in half of the time',
        _op_id bigint comment 'the op that wrote the row',
        _replaces bigint comment 'the op that wrote the row that this one replaced',
        _digest_high bigint comment 'first 8 bytes of the SHA-256 of the checksum: with _digest_low, shows whether the data are equal',
        _digest_low bigint comment 'its next 8 bytes',
        _checksum bigint comment 'checksum of that op, unsigned 32 bits',
        _checkpoint_id bigint comment 'the checkpoint at which the row was written'
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
