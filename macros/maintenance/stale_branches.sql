{#- The branches of runs that have written their manifest, but not moved main to it. For other branches main may
    be at the head, or have been: a run that has just created its branch and found it missing would write to a branch
    created from the newest main. -#}
{% macro stale_branches(keep_seconds) -%}
    select refs.name
    from core.releases.refs as refs
    inner join core.releases.snapshots as heads on refs.snapshot_id = heads.snapshot_id
    left anti join core.releases.history as published on refs.snapshot_id = published.snapshot_id
    where
        startswith(refs.name, 'run_')
        and heads.committed_at <= current_timestamp() - make_dt_interval(0, 0, 0, {{ keep_seconds }})
{%- endmacro %}
