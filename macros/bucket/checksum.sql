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
