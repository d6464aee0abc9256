{#- The `row_key` of a row whose key is this integer. -#}
{% macro int_to_row_key(number) -%}
    concat('["', {{ number }}, '"]')
{%- endmacro %}
