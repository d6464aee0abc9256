{#- A column or a number in a struct, to compare two of them. Spark keeps the literal of a struct out of the generated
    code, so it does not compile that code again for each number. -#}
{% macro uncompiled_literal(number) -%}
    struct({{ number }})
{%- endmacro %}
