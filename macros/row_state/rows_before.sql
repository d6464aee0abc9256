{#- What a table without a key had of each row, for its equal rows are counted: nothing, where a truncate took it. -#}
{% macro rows_before(row_state, batch) -%}
    select present.*
    from {{ tidemark.rows_of_tables(row_state, batch.keyless) }} as present
    {%- if batch.truncated %}
    left anti join truncates
        on
            present.source = truncates.source
            and present.table_id = truncates.table_id
            and present.partition_id = coalesce(truncates.partition_id, present.partition_id)
    {%- endif %}
{%- endmacro %}
