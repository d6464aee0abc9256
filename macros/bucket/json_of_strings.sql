{#- Columns as a JSON array of strings: the values of a bucket's name, or a key. -#}
{% macro json_of_strings(columns) -%}
    {%- if columns -%}
        to_json(array({% for column in columns %}cast({{ tidemark.quote_identifier(column) }} as string){{ ', ' if not loop.last }}{% endfor %}))
    {%- else -%}
        '[]'
    {%- endif -%}
{%- endmacro %}
