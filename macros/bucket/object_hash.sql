{#- A hash of an object's identity. Equal identities have equal hashes; rarely, different ones have too. -#}
{% macro object_hash() -%}
    xxhash64(bucket, object_type, object_id, row_key)
{%- endmacro %}
