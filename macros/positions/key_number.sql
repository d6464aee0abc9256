{#- The number that a row's key is, as `["7"]` is: NULL of any other key, and of one that is written in another way. -#}
{% macro number_of_key(row_key) -%}
    {%- set number = "try_cast(substr(" ~ row_key ~ ", 3, length(" ~ row_key ~ ") - 4) as bigint)" -%}
    if({{ row_key }} = {{ tidemark.key_of_number(number) }}, {{ number }}, null)
{%- endmacro %}

{#- The key that is a number. -#}
{% macro key_of_number(number) -%}
    concat('["', {{ number }}, '"]')
{%- endmacro %}
