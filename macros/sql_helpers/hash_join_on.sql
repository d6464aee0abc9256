{#- Whether two rows have the same key, given as pairs of columns, one of each row. Joining by the integer hash takes
    half of the time of text. -#}
{% macro hash_join_on(pairs) -%}
    xxhash64({{ pairs | map('first') | join(', ') }}) = xxhash64({{ pairs | map('last') | join(', ') }})
    and {{ tidemark.values_equal(pairs) }}
{%- endmacro %}

{#- Whether the values of pairs are equal, as a condition in addition to the hash of a join: Spark would also join by
    columns that are compared by `=`. -#}
{% macro values_equal(pairs) -%}
    {%- for left, right in pairs %}
    {{ 'and ' if not loop.first }}{{ left }} between {{ right }} and {{ right }}
    {%- endfor %}
{%- endmacro %}
