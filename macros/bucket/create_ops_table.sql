{#- The statement that creates a definition's op log. -#}
{% macro create_ops_table(table) -%}
    create table {{ table }} (
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
