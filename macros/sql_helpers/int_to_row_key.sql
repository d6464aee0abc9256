{#- The row's key of an integer. -#}
{% macro int_to_row_key(number) -%}
    concat('["', {{ number }}, '"]')
{%- endmacro %}
