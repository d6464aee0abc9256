{#-
  A column, or a field of a MongoDB document by its path, as text for the macros beside to read: `field('address', 'city')`. A field
  of the document itself is canonical Extended JSON; one of a nested document too, but for strings, which are themselves.
-#}
{% macro field(name) -%}
    {%- set found = namespace(sql="columns[" ~ tidemark.literal(name) ~ "]") -%}
    {%- for part in varargs -%}
        {%- set found.sql = "from_json(" ~ found.sql ~ ", 'map<string, string>')[" ~ tidemark.literal(part) ~ "]" -%}
    {%- endfor -%}
    {{ return(found.sql) }}
{%- endmacro %}
