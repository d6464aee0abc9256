{#- Identifies the contents of a seed as it is loaded, whatever the order of its rows. -#}
{% macro seed_contents_query(seed) -%}
    select cast(sum(cast(xxhash64(to_json(struct(*), {{ tidemark.json_options() }})) as decimal(38))) as string) as contents
    from {{ seed }}
{%- endmacro %}
