{#-
  Deletes from `core.checkpoints` those that are older than the newest one of at least `keep_seconds` ago, if they are
  `superseded_share` of all. The newest one stays for each source: maintenance needs it to know what is old.
-#}
{% macro purge_checkpoints(keep_seconds, superseded_share) -%}
    {%- set old = tidemark.old_checkpoints(keep_seconds) if 'checkpoints' in tidemark.watermarks() else {} -%}
    {%- if old -%}
        {%- set checkpoints = tidemark.get_core_relation('checkpoints') | string -%}
        {%- set superseded = tidemark._superseded_checkpoints(old) -%}
        {%- set counts = run_query('select count(*) as all_rows, count_if(' ~ superseded ~ ') as superseded from ' ~ checkpoints)[0] -%}
        {%- set count = counts['superseded'] | int -%}
        {%- if count and count >= superseded_share * (counts['all_rows'] | int) -%}
            {%- do tidemark.publish_maintenance(
                'checkpoints', checkpoints, ['delete from ' ~ checkpoints ~ ' where ' ~ superseded], count ~ ' old checkpoints purged'
            ) -%}
        {%- endif -%}
    {%- endif -%}
{%- endmacro %}

{% macro _superseded_checkpoints(old) -%}
    (
        {%- for source, checkpoint_id in old.items() %}
        {{ 'or ' if not loop.first }}(source = '{{ source }}' and checkpoint_id < {{ checkpoint_id }})
        {%- endfor %}
    )
{%- endmacro %}

{#- {source: the newest checkpoint_id that is old enough}. -#}
{% macro old_checkpoints(keep_seconds) -%}
    {%- set query -%}
        select
            source,
            max(checkpoint_id) as checkpoint_id
        from {{ tidemark.get_core_relation('checkpoints') }}
        where created_at <= current_timestamp() - make_dt_interval(0, 0, 0, {{ keep_seconds }})
        group by source
    {%- endset -%}
    {%- set old = {} -%}
    {%- for row in run_query(query) -%}
        {%- do old.update({row['source']: row['checkpoint_id'] | int}) -%}
    {%- endfor -%}
    {{ return(old) }}
{%- endmacro %}
