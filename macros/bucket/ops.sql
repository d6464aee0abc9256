{#- Which rows of a definition a run appended: those of its checkpoint with an op id after `last_op`, and the marks. -#}
{% macro appended(last_op, standing) -%}
    {{ tidemark.is_one_of('_checkpoint_id', [tidemark.newest(standing)]) }}
    and ({{ tidemark.boxed('_op_id') }} > {{ tidemark.boxed(last_op ~ 'L') }} or _op_id < 0)
{%- endmacro %}

{#- How many differences were just appended: {put, removed}. -#}
{% macro count_differences(relation, last_op, standing) -%}
    {%- set row = run_query(
        'select count_if(_op_id > 0) as put, count_if(_op_id < 0) as removed from ' ~ relation
        ~ ' where ' ~ tidemark.appended(last_op, standing)
    )[0] -%}
    {{ return({'put': row['put'] | int, 'removed': row['removed'] | int}) }}
{%- endmacro %}

{#- The statement that logs them: what was appended to the rows, as ops. -#}
{% macro insert_ops(relation, columns, last_op, standing) -%}
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
    where {{ tidemark.appended(last_op, standing) }}
{%- endmacro %}

{#- The statement that deletes the rows that they replace, and the marks of those that go. Of the target it reads one number a row. -#}
{% macro delete_superseded_rows(relation, last_op, standing) -%}
    merge into {{ relation }} as old
    using (
        select explode(if(_op_id < 0, array(_op_id, _replaces), array(_replaces))) as op_id
        from {{ relation }}
        where {{ tidemark.appended(last_op, standing) }}
    ) as gone
    on old._op_id = gone.op_id
    when matched then delete
{%- endmacro %}
