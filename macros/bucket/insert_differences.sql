{#-
  The statement that evaluates a definition and appends the differences to its rows: the rows that are to be there, and for
  each that is to go a mark with a negative op id, until `delete_superseded_rows`. Op ids go on from `last_op`.
-#}
{% macro insert_differences(relation, sql, settings, columns, plan, change, last_op) -%}
    insert into {{ relation }} (
        bucket, object_type, object_id, row_key,
        {%- for column in columns %} {{ tidemark.quoted(column.name) }},{% endfor %} _key_number, _op_id, _replaces, _digest_high,
        _digest_low, _checksum, _checkpoint_id
    )
    with objects as (
        {{ tidemark.evaluated_objects(sql, settings, columns, plan) }}
    ),

    evaluated as (
        {{ tidemark.told_apart(settings, columns) }}
    ),

    {% if change.is_new -%}
    differences as (
        select
            *,
            cast(null as bigint) as _replaces,
            true as _is_put
        from evaluated
    ),
    {%- else -%}
    before as (
        {{ tidemark.rows_compared(relation, settings, plan) }}
    ),

    differences as (
        select
            evaluated.* except (bucket, object_type, object_id, row_key, _place),
            coalesce(evaluated.bucket, before.bucket) as bucket,
            coalesce(evaluated.object_type, before.object_type) as object_type,
            coalesce(evaluated.object_id, before.object_id) as object_id,
            coalesce(evaluated.row_key, before.row_key) as row_key,
            before._op_id as _replaces,
            evaluated.row_key is not null as _is_put
        from evaluated
        full outer join (select *, {{ tidemark.object_place() }} as _place from before) as before
            on
                evaluated._place = before._place
                and {{ tidemark.same_values([
                    ['evaluated.bucket', 'before.bucket'],
                    ['evaluated.object_type', 'before.object_type'],
                    ['array(evaluated.object_id)', 'array(before.object_id)'],
                    ['evaluated.row_key', 'before.row_key'],
                ]) }}
        {% if not change.rewritten -%}
        where
            not evaluated._digest_high <=> before._digest_high
            or not evaluated._digest_low <=> before._digest_low
        {%- endif %}
    ),
    {%- endif %}

    numbered as (
        select
            *,
            {{ tidemark._told_by_the_row(last_op) }} + row_number() over (order by _is_put, bucket, row_key) as _seq
        from differences
    )

    select
        bucket,
        object_type,
        object_id,
        row_key,
        {%- for column in columns %}
        {{ tidemark.quoted(column.name) }},
        {%- endfor %}
        {{ tidemark.number_of_key('row_key') }} as _key_number,
        if(_is_put, _seq, -_seq) as _op_id,
        _replaces,
        _digest_high,
        _digest_low,
        {{ tidemark.checksum("if(_is_put, lpad(hex(_digest_high), 16, '0'), sha2(concat('delete.', row_key), 256))") }} as _checksum,
        {{ tidemark._told_by_the_row(tidemark.newest(plan.standing)) }} as _checkpoint_id
    from numbered
{%- endmacro %}

{#- A number of this run, the same for every row, that does not come into the code which Spark generates (see `of_checkpoints`). -#}
{% macro _told_by_the_row(number) -%}
    array({{ number }}L, {{ number }}L)[int(_is_put)]
{%- endmacro %}
