{#- A definition: its current rows, and a log of the ops that led to them. See `materialize_bucket`. -#}
{% materialization bucket, adapter='tidemark' %}
    {{ return(tidemark.materialize_bucket(sql, pre_hooks, post_hooks)) }}
{% endmaterialization %}
