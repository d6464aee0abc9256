{#- One map laid over another: its values win, and what it lacks shines through. -#}
{% macro laid_over(below, above) -%}
    map_concat(
        coalesce(
            map_filter({{ below }}, (k, v) -> not map_contains_key({{ above }}, k)),
            cast(map() as map<string, string>)
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
