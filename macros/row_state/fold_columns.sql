{#- An aggregate for a query that groups records by row: their `columns`, merged in the order of the log. -#}
{% macro fold_columns() -%}
    aggregate(
        array_sort(collect_list(struct(place, columns)), (l, r) -> case when l.place < r.place then -1 else 1 end),
        cast(map() as map<string, string>),
        (below, above) -> {{ tidemark.merge_maps('below', 'above.columns') }}
    )
{%- endmacro %}
