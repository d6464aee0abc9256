{#-
  The columns of a wide table, read by position. Spark searches a map key by key, so that a view of all columns takes
  time with the square of their number. `names` are the table's columns in the table's order. Returns the SQL of each
  column's text, by the column's name.
-#}
{% macro texts_by_position(names) -%}
    {%- set texts = {} -%}
    {%- for name in names -%}
        {%- do texts.update({name: "get(ordered_texts, " ~ loop.index0 ~ ")"}) -%}
    {%- endfor -%}
    {{ return(texts) }}
{%- endmacro %}
