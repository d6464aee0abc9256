{#- Columns as a JSON array of strings: the values of a bucket's name, or a key. -#}
{% macro json_of_strings(columns) -%}
    {%- if columns -%}
        to_json(array({% for column in columns %}cast({{ tidemark.quote_identifier(column) }} as string){{ ', ' if not loop.last }}{% endfor %}))
    {%- else -%}
        '[]'
    {%- endif -%}
{%- endmacro %}

{#- An object's data: JSON of its columns sorted by name, with NULLs, times in UTC with microseconds. Rows are compared
    by it, so it must be a pure function of the values. -#}
{% macro data_json(columns) -%}
    to_json(
        named_struct(
            {%- for column in columns | sort %}
            {{ tidemark.literal(column) }}, {{ tidemark.quote_identifier(column) }}{{ ',' if not loop.last }}
            {%- endfor %}
        ),
        {{ tidemark.json_options() }}
    )
{%- endmacro %}

{#- Options of `to_json` with which different values have different JSON. -#}
{% macro json_options() -%}
    map(
        'ignoreNullFields', 'false',
        'timeZone', 'UTC',
        'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        'timestampNTZFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
    )
{%- endmacro %}

{#- The first four bytes, little-endian, of a SHA-256 in hexadecimal, as an unsigned number. A bucket's checksum is the
    sum of its ops' checksums modulo 2^32. -#}
{% macro checksum(sha256) -%}
    cast(
        conv(
            concat_ws(
                ''
                {%- for byte in [7, 5, 3, 1] -%}
                , substr({{ sha256 }}, {{ byte }}, 2)
                {%- endfor -%}
            ), 16, 10
        ) as bigint
    )
{%- endmacro %}
