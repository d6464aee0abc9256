{#- The op log of a definition. -#}
{% macro ops_relation(relation) -%}
    {{ return(api.Relation.create(schema=relation.schema, identifier=relation.identifier ~ '__ops')) }}
{%- endmacro %}

{#- The rows of a definition that this run appended, as a predicate: those of its checkpoint with an op id after
    `last_op`, and the markers. -#}
{% macro rows_of_this_run(last_op, positions) -%}
    {{ tidemark.in_list('_checkpoint_id', [tidemark.newest_checkpoint(positions)]) }}
    and ({{ tidemark.uncompiled_literal('_op_id') }} > {{ tidemark.uncompiled_literal(last_op ~ 'L') }} or _op_id < 0)
{%- endmacro %}

{#- The number of differences that were just appended: {put, removed}. -#}
{% macro count_differences(relation, last_op, positions) -%}
    {%- set row = run_query(
        'select count_if(_op_id > 0) as put, count_if(_op_id < 0) as removed from ' ~ relation
        ~ ' where ' ~ tidemark.rows_of_this_run(last_op, positions)
    )[0] -%}
    {{ return({'put': row['put'] | int, 'removed': row['removed'] | int}) }}
{%- endmacro %}

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

{#- The statement that deletes superseded rows, and the markers of removed ones. It reads one number per row of the
    target. -#}
{% macro delete_superseded_rows(relation, last_op, positions) -%}
    merge into {{ relation }} as old
    using (
        select explode(if(_op_id < 0, array(_op_id, _replaces), array(_replaces))) as op_id
        from {{ relation }}
        where {{ tidemark.rows_of_this_run(last_op, positions) }}
    ) as superseded
    on old._op_id = superseded.op_id
    when matched then delete
{%- endmacro %}
