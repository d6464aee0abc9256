{#- A record's position in the order of its source's log: by commit, then change, then index. Structs are compared field
    by field. -#}
{% macro log_order(commit_lsn='commit_lsn', change_lsn='change_lsn', commit_index='commit_index') -%}
    named_struct('commit_lsn', {{ commit_lsn }}, 'change_lsn', {{ change_lsn }}, 'commit_index', {{ commit_index }})
{%- endmacro %}
