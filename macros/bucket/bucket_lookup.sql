{#-
  Which buckets of a definition a reader may see, by what it says of itself in a request (`meta.parameters`, such as `user_id`):
  a definition like any other, with a bucket per request whose objects are buckets' names. The query selects the request's
  columns, and those of the definition's `bucket_by`. `tidemark buckets --for user_id=42` looks it up.
-#}
{% materialization bucket_lookup, adapter='spark' %}
    {%- set settings = tidemark.parameters_settings(model) -%}
    {{ return(tidemark.keep_bucket(tidemark.parameters_sql(sql, model), settings, pre_hooks, post_hooks)) }}
{% endmaterialization %}
