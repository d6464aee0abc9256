{#- Whether two rows have the same key, given as pairs of columns, one of each row. A join looks for a number in half of the time
    that it takes for texts; these are compared by `between`, as Spark would look for what is compared by `=`. -#}
{% macro same_key(pairs) -%}
    xxhash64({{ pairs | map('first') | join(', ') }}) = xxhash64({{ pairs | map('last') | join(', ') }})
    {%- for left, right in pairs %}
    and {{ left }} between {{ right }} and {{ right }}
    {%- endfor %}
{%- endmacro %}
