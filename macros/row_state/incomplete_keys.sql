{#- The keys of the rows that may have the values that records of `kept_records` lack: their own and, if a key has changed, the
    previous ones. -#}
{% macro incomplete_keys(keys_changed) -%}
    select source, table_id, row_key from kept where is_partial
    {%- if keys_changed %}
    union
    select source, table_id, old_row_key from kept where is_partial and old_row_key is not null
    {%- endif %}
{%- endmacro %}
