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
