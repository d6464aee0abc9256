{#- Merges two maps: the values of `above` win, also NULLs; keys that it lacks keep the values of `below`. Keys keep the
    order of `below`, so that a row's map does not depend on the number of steps. -#}
{% macro merge_maps(below, above) -%}
    coalesce(
        map_zip_with(
            {{ below }},
            transform_values({{ above }}, (k, v) -> struct(v)),
            (k, low, high) -> if(high is null, low, high.v)
        ),
        {{ above }}
    )
{%- endmacro %}
