{#- Whether an event belongs to a table of the CTE `scope` (see `kept_records`), and to the range that the run folds. -#}
{% macro is_in_scope(events) -%}
    {{ events }}.source = scope.source
    and {{ events }}.table_id = scope.table_id
    and {{ events }}.commit_lsn >= scope.lower_lsn
    and {{ events }}.commit_lsn < scope.upper_lsn
    and not scope.is_ended
{%- endmacro %}
