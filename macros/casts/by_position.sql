{#-
  The columns of a wide table, read by position. Spark searches a map key by key, so that a view of all columns takes
  time with the square of their number. `names` are the table's columns in the table's order.
-#}

{#- The SQL of each column's text, by the column's name. -#}
{% macro columns_by_position(names) -%}
    {%- set columns = {} -%}
    {%- for name in names -%}
        {%- do columns.update({name: "get(ordered_values, " ~ loop.index0 ~ ")"}) -%}
    {%- endfor -%}
    {{ return(columns) }}
{%- endmacro %}

{#-
  The rows of `row_state` with their texts in the order of `names`, as the array `ordered_values`. The map of most rows
  has that order. Another map, such as one from before a column was dropped, is brought into it by a hash table.
-#}
{% macro with_ordered_values(row_state, names) -%}
    {%- set keys = "from_json(" ~ tidemark.literal(names | tojson) ~ ", 'array<string>')" -%}
    (
        select
            *,
            if(
                map_keys(columns) = slice({{ keys }}, 1, cardinality(columns)),
                map_values(columns),
                map_values(
                    map_zip_with(map_from_arrays({{ keys }}, {{ keys }}), columns, (key, same_key, value) -> value)
                )
            ) as ordered_values
        from {{ row_state }}
    )
{%- endmacro %}
