{#- The statement that logs the differences: the appended rows, as ops. -#}
{% macro insert_ops(relation, columns, last_op, positions) -%}
    insert into {{ tidemark.ops_relation(relation) }}
    select
        bucket,
        abs(_op_id) as op_id,
        if(_op_id > 0, 'PUT', 'REMOVE') as op,
        object_type,
        object_id,
        row_key,
        if(_op_id > 0, {{ tidemark.data_json(columns | map(attribute='name')) }}, null) as data,
        _checksum as checksum,
        cast(null as bigint) as superseded_by,
        _checkpoint_id as checkpoint_id
    from {{ relation }}
    where {{ tidemark.rows_of_this_run(last_op, positions) }}
{%- endmacro %}
