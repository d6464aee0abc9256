{#- Whether a row is of its source's checkpoint. `points`: {source: {checkpoint_id}}. -#}
{% macro at_checkpoint(points) -%}
    (
        false
        {%- for source, point in points.items() %}
        or (source = '{{ source }}' and {{ tidemark.in_list('checkpoint_id', [point.checkpoint_id]) }})
        {%- endfor %}
    )
{%- endmacro %}
