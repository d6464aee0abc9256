{#- A record's place in the order of its source's log (design rule P2): structs compare field by field. -#}
{% macro place(commit_lsn='commit_lsn', change_lsn='change_lsn', commit_index='commit_index') -%}
    named_struct('commit_lsn', {{ commit_lsn }}, 'change_lsn', {{ change_lsn }}, 'commit_index', {{ commit_index }})
{%- endmacro %}
