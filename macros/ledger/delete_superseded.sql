{#- Deletes the versions of rows that are older than those just appended, under the checkpoints of their sources, `at`. Of tables
    that none was appended of nothing is read. `key`: what tells a row from all others; a `table_id` is of one source. -#}
{% macro delete_superseded(relation, key, at) -%}
    {%- set appended = tidemark.of_its_checkpoint(at) -%}
    {%- set tables = run_query('select distinct source, table_name from ' ~ relation ~ ' where ' ~ appended) -%}
    {%- set pairs = [] -%}
    {%- for column in key -%}{%- do pairs.append(['old.' ~ column, 'new.' ~ column]) -%}{%- endfor -%}
    merge into {{ relation }} as old
    using (
        select {{ key | join(', ') }}, checkpoint_id from {{ relation }} where {{ appended }}
    ) as new
    on
        {{ tidemark.of_tables(tables, 'old') }}
        and {{ tidemark.same_key(pairs) }}
        and old.checkpoint_id <> new.checkpoint_id
    when matched then delete
{%- endmacro %}
