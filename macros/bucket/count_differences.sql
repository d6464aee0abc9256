{#- The number of differences that were just appended: {put, removed}. -#}
{% macro count_differences(relation, last_op, positions) -%}
    {%- set row = run_query(
        'select count_if(_op_id > 0) as put, count_if(_op_id < 0) as removed from ' ~ relation
        ~ ' where ' ~ tidemark.rows_of_this_run(last_op, positions)
    )[0] -%}
    {{ return({'put': row['put'] | int, 'removed': row['removed'] | int}) }}
{%- endmacro %}
