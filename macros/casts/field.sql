{#-
  A column, or a field of a MongoDB document by its path, as text that the macros of this folder read:
  `field('address', 'city')`. A field of the document itself is canonical Extended JSON. So is a field of a nested
  document, except for strings, which have no quotes.
-#}
{% macro field(name) -%}
    {{ return(tidemark.nested_field("columns[" ~ tidemark.literal(name) ~ "]", *varargs)) }}
{%- endmacro %}
