{#-
  The rows of `row_state` with their texts in the order of `names`, as the array `ordered_texts`. The map of most rows of
  a table has that order, also if columns were added at its end. Another map is brought into it by a hash table. The names
  are JSON, because the check of `evaluation: incremental` would take the text 'now' for a time.
-#}
{% macro with_ordered_texts(row_state, names) -%}
    {%- set keys = "from_json(" ~ tidemark.literal(names | tojson) ~ ", 'array<string>')" -%}
    (
        select
            *,
            if(
                slice(map_keys(columns), 1, {{ names | length }}) = slice({{ keys }}, 1, cardinality(columns)),
                map_values(columns),
                map_values(
                    map_zip_with(map_from_arrays({{ keys }}, {{ keys }}), columns, (key, same_key, value) -> value)
                )
            ) as ordered_texts
        from {{ row_state }}
    )
{%- endmacro %}
