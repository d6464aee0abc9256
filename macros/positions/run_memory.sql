{#-
  What one invocation of dbt remembers from node to node: a dictionary inside of `graph`, the one object that all nodes of
  a run share. It saves every model the same small queries, and makes the whole run go by one reading of the marks. In a
  warm process `graph` lives as long as the project is not parsed anew: the last run's memory goes.
-#}
{% macro run_memory() -%}
    {%- set memory = graph.setdefault('tidemark', {'invocation_id': invocation_id}) -%}
    {%- if memory.invocation_id != invocation_id -%}
        {%- do memory.clear() -%}
        {%- do memory.update({'invocation_id': invocation_id}) -%}
    {%- endif -%}
    {{ return(memory) }}
{%- endmacro %}
