{#- Whether the values of pairs are equal, as a condition in addition to the hash of a join: Spark would also join by
    columns that are compared by `=`. -#}
{% macro values_equal(pairs) -%}
    {%- for left, right in pairs %}
    {{ 'and ' if not loop.first }}{{ left }} between {{ right }} and {{ right }}
    {%- endfor %}
{%- endmacro %}
