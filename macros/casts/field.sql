{#-
  A column, or a field of a MongoDB document by its path, as text that the macros of this folder read:
  `field('address', 'city')`. A field of the document itself is canonical Extended JSON. So is a field of a nested
  document, except for strings, which have no quotes.
-#}
{% macro field(name) -%}
    {%- set result = namespace(sql="columns[" ~ tidemark.literal(name) ~ "]") -%}
    {%- for part in varargs -%}
        {%- set result.sql = "from_json(" ~ result.sql ~ ", 'map<string, string>')[" ~ tidemark.literal(part) ~ "]" -%}
    {%- endfor -%}
    {{ return(result.sql) }}
{%- endmacro %}
