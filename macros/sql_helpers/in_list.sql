{#- Whether a column's value is one of some positive numbers; see `in_checkpoints`. -#}
{% macro in_list(column, numbers) -%}
    {{ column }} in ({{ (range(-11, 0) | list + numbers) | join(', ') }})
{%- endmacro %}
