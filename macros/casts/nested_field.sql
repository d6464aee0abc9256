{#- A field of a nested document: `json` is the document's text, the other arguments are the path. -#}
{% macro nested_field(json) -%}
    {%- set result = namespace(sql=json) -%}
    {%- for name in varargs -%}
        {%- set result.sql = "from_json(" ~ result.sql ~ ", 'map<string, string>')[" ~ tidemark.literal(name) ~ "]" -%}
    {%- endfor -%}
    {{ return(result.sql) }}
{%- endmacro %}
