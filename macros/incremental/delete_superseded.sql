{#- Deletes the versions of rows that are older than those just appended at the checkpoints of their sources, `points`.
    `key`: the columns that identify a row; a `table_id` belongs to one source. `tables`: those that may have appended
    rows, see `in_tables`; others are not read. -#}
{% macro delete_superseded(relation, key, points, tables) -%}
    {%- set appended = tidemark.at_checkpoint(points) -%}
    {%- set pairs = [] -%}
    {%- for column in key -%}{%- do pairs.append(['old.' ~ column, 'new.' ~ column]) -%}{%- endfor -%}
    merge into {{ relation }} as old
    using (
        select {{ key | join(', ') }}, checkpoint_id from {{ relation }} where {{ appended }}
    ) as new
    on
        {{ tidemark.in_tables(tables, 'old') }}
        and {{ tidemark.hash_join_on(pairs) }}
        and old.checkpoint_id <> new.checkpoint_id
    when matched then delete
{%- endmacro %}
