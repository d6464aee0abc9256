{#- What was just appended: the number of differences, the last op, and whether all keys are integers: {put, removed, last_op,
    has_integer_keys}. -#}
{% macro count_differences(relation, last_op, positions) -%}
    {%- set row = run_query(
        'select count_if(_op_id > 0) as put, count_if(_op_id < 0) as removed, max(abs(_op_id)) as last_op,'
        ~ ' count_if(_key_number is null) = 0 as has_integer_keys from ' ~ relation
        ~ ' where ' ~ tidemark.rows_of_this_run(last_op, positions)
    )[0] -%}
    {{ return({
        'put': row['put'] | int, 'removed': row['removed'] | int,
        'last_op': (row['last_op'] or last_op) | int, 'has_integer_keys': row['has_integer_keys'],
    }) }}
{%- endmacro %}
