{#- The previous rows of tables without a key, whose equal rows are counted; without the rows that a truncate deleted.
    -#}
{% macro previous_rows(row_state, profile) -%}
    select present.*
    from {{ tidemark.rows_in_tables(row_state, profile.keyless) }} as present
    {%- if profile.truncated %}
    left anti join truncates
        on
            present.source = truncates.source
            and present.table_id = truncates.table_id
            and present.partition_id = coalesce(truncates.partition_id, present.partition_id)
    {%- endif %}
{%- endmacro %}
