{#- The statement that deletes the rows that this run replaced, and the markers of removed ones. It reads one number per row of the
    target. -#}
{% macro delete_replaced_rows(relation, last_op, positions) -%}
    merge into {{ relation }} as old
    using (
        select explode(if(_op_id < 0, array(_op_id, _replaces), array(_replaces))) as op_id
        from {{ relation }}
        where {{ tidemark.rows_of_this_run(last_op, positions) }}
    ) as replaced
    on old._op_id = replaced.op_id
    when matched then delete
{%- endmacro %}
