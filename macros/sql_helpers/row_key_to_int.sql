{#- The integer of a row's key such as `["7"]`: NULL for any other key, and for a number in another notation. -#}
{% macro row_key_to_int(row_key) -%}
    {%- set number = "try_cast(substr(" ~ row_key ~ ", 3, length(" ~ row_key ~ ") - 4) as bigint)" -%}
    if({{ row_key }} = {{ tidemark.int_to_row_key(number) }}, {{ number }}, null)
{%- endmacro %}
