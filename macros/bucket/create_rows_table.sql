{#- The statement that creates a definition's rows. -#}
{% macro create_rows_table(table, columns) -%}
    create table {{ table }} (
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
