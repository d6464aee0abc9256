{#- The last truncate of each table, and of each partition of a partitioned table (`partition_id`; null for the whole
    table). -#}
{% macro truncates_in_scope(events, profile) -%}
    select
        events.source,
        events.table_id,
        events.partition_id,
        max({{ tidemark.log_order('events.commit_lsn', 'events.change_lsn', 'events.commit_index') }}) as place
    from {{ events }} as events
    inner join scope on {{ tidemark.is_in_scope('events') }}
    where events.op = 'truncate' and {{ profile.predicate }}
    group by events.source, events.table_id, events.partition_id
{%- endmacro %}
