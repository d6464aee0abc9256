{#- Options of `to_json` with which different values have different JSON. -#}
{% macro json_options() -%}
    map(
        'ignoreNullFields', 'false',
        'timeZone', 'UTC',
        'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        'timestampNTZFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
    )
{%- endmacro %}
