{#-
  A field of a MongoDB document, by its path: `field('address', 'city')`. Its text: of a string the string, of null and of a
  field that is not there NULL, of anything else its canonical Extended JSON, for the macros of bson.sql to read.
-#}
{% macro field(name) -%}
    {%- set found = namespace(sql="from_json('[' || columns[" ~ tidemark.literal(name) ~ "] || ']', 'array<string>')[0]") -%}
    {%- for part in varargs -%}
        {%- set found.sql = "from_json(" ~ found.sql ~ ", 'map<string, string>')[" ~ tidemark.literal(part) ~ "]" -%}
    {%- endfor -%}
    {{ return(found.sql) }}
{%- endmacro %}
