{#-
  Determines which buckets of a definition a reader may see, by the parameters of its request (`meta.parameters`, such
  as `user_id`). A lookup is stored like any other definition: one bucket per request, whose objects are the names of
  buckets. The query selects the request's columns, and the columns of the definition's `bucket_by`. `tidemark buckets
  --for user_id=42` reads it.
-#}
{% materialization bucket_lookup, adapter='tidemark' %}
    {{ return(tidemark.materialize_bucket(tidemark.lookup_sql(sql, model), pre_hooks, post_hooks)) }}
{% endmaterialization %}
