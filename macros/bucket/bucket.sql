{#- A definition: a slice of the data, kept as the rows now and the log of how they came about. See `keep_bucket`. -#}
{% materialization bucket, adapter='spark' %}
    {{ return(tidemark.keep_bucket(sql, tidemark.bucket_settings(model), pre_hooks, post_hooks)) }}
{% endmaterialization %}
