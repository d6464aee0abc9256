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
