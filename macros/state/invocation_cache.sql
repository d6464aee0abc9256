{#-
  Values that one invocation of dbt shares between nodes: a dictionary in `graph`, the one object that all nodes of a
  run share. It saves each model the same small queries, and lets the whole run use the watermarks of one read. In a
  warm process `graph` lives until the project is parsed again, so the values of the last run are cleared.
-#}
{% macro invocation_cache() -%}
    {%- set cache = graph.setdefault('tidemark', {'invocation_id': invocation_id}) -%}
    {%- if cache.invocation_id != invocation_id -%}
        {%- do cache.clear() -%}
        {%- do cache.update({'invocation_id': invocation_id}) -%}
    {%- endif -%}
    {{ return(cache) }}
{%- endmacro %}
