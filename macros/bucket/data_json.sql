{#- An object's data: JSON of its columns sorted by name, with NULLs, times in UTC with microseconds. Rows are compared
    by it, so it must be a pure function of the values. -#}
{% macro data_json(columns) -%}
    to_json(
        named_struct(
            {%- for column in columns | sort %}
            {{ tidemark.literal(column) }}, {{ tidemark.quote_identifier(column) }}{{ ',' if not loop.last }}
            {%- endfor %}
        ),
        {{ tidemark.json_options() }}
    )
{%- endmacro %}
