{#- Ranges as a select of (source, checkpoint_id, lower_lsn, upper_lsn, since), for joins. -#}
{% macro ranges_select(ranges) -%}
    select * from
        {%- if ranges %}
        values
            {%- for range in ranges %}
            ('{{ range.source }}', {{ range.checkpoint_id }}L, {{ range.lower }}L, {{ range.upper }}L, {{ range.since }}L)
            {{- ',' if not loop.last }}
            {%- endfor %}
        {%- else %}
        (select '', 0L, 0L, 0L, 0L where false)
        {%- endif %}
        as ranges (source, checkpoint_id, lower_lsn, upper_lsn, since)
{%- endmacro %}

{#- Ranges as a predicate with literals, by which Iceberg skips the files of other sources and times. -#}
{% macro in_ranges(ranges, relation) -%}
    (
        false
        {%- for range in ranges %}
        or (
            {{ relation }}.source = '{{ range.source }}'
            and {{ relation }}.commit_lsn >= {{ range.lower }}
            and {{ relation }}.commit_lsn < {{ range.upper }}
        )
        {%- endfor %}
    )
{%- endmacro %}
