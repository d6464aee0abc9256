{#- Deletes the versions of rows that are older than those just appended, under the checkpoints of their sources, `at`. -#}
{% macro delete_superseded(relation, key, at) -%}
    {%- set pairs = [] -%}
    {%- for column in key -%}{%- do pairs.append(['old.' ~ column, 'new.' ~ column]) -%}{%- endfor -%}
    merge into {{ relation }} as old
    using (
        select {{ key | join(', ') }}, checkpoint_id from {{ relation }} where {{ tidemark.of_its_checkpoint(at) }}
    ) as new
    on
        {{ tidemark.same_key(pairs) }}
        and old.checkpoint_id <> new.checkpoint_id
    when matched then delete
{%- endmacro %}
