{#- A column or number for a comparison whose code Spark does not compile again for each number; see `in_checkpoints`. -#}
{% macro uncompiled_literal(number) -%}
    struct({{ number }})
{%- endmacro %}
