{#-
  What one invocation of dbt remembers from node to node: a dictionary inside of `graph`, the one object that all nodes of
  a run share. It saves every model the same small queries, and makes the whole run go by one reading of the marks.
-#}
{% macro run_memory() -%}
    {{ return(graph.setdefault('tidemark ' ~ invocation_id, {})) }}
{%- endmacro %}
