{#- One map laid over another: its values win, NULLs too, and what it lacks shines through. Keys stay in the order of the map below,
    so that a row's map is the same in however many steps it came about. -#}
{% macro laid_over(below, above) -%}
    coalesce(
        map_zip_with(
            {{ below }},
            transform_values({{ above }}, (k, v) -> struct(v)),
            (k, low, high) -> if(high is null, low, high.v)
        ),
        {{ above }}
    )
{%- endmacro %}

{#- The columns of a group's records, laid over each other in the order of the log. -#}
{% macro overlaid() -%}
    aggregate(
        array_sort(collect_list(struct(place, columns)), (l, r) -> case when l.place < r.place then -1 else 1 end),
        cast(map() as map<string, string>),
        (below, above) -> {{ tidemark.laid_over('below', 'above.columns') }}
    )
{%- endmacro %}
