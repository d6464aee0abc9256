{#-
  The statement that evaluates a definition and appends the differences to its rows: the new versions of rows, and for
  each removed row a marker with a negative op id, which `delete_replaced_rows` deletes. Op ids continue after
  `last_op`. If there are many rows, they are divided into slices. One task numbers a slice, and the ids of the slices
  alternate. All ops of an object are in one slice, removals first. The rows are then sorted by bucket, so that few files
  contain a bucket.
-#}
{% macro insert_differences(relation, sql, settings, columns, plan, change, last_op, slices) -%}
    insert into {{ relation }} (
        bucket, object_type, object_id, row_key,
        {%- for column in columns %} {{ tidemark.quote_identifier(column.name) }},{% endfor %} _key_number, _op_id, _replaces, _digest_high,
        _digest_low, _checksum, _checkpoint_id
    )
    with objects as (
        {{ tidemark.evaluated_objects(sql, settings, columns, plan) }}
    ),

    evaluated as (
        {{ tidemark.with_digest_and_uniqueness(settings, columns) }}
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
        {{ tidemark.existing_rows(relation, settings, plan) }}
    ),

    differences as (
        select
            evaluated.* except (bucket, object_type, object_id, row_key, _object_hash),
            coalesce(evaluated.bucket, before.bucket) as bucket,
            coalesce(evaluated.object_type, before.object_type) as object_type,
            coalesce(evaluated.object_id, before.object_id) as object_id,
            coalesce(evaluated.row_key, before.row_key) as row_key,
            before._op_id as _replaces,
            evaluated.row_key is not null as _is_put
        from evaluated
        full outer join (select *, {{ tidemark.object_hash() }} as _object_hash from before) as before
            on
                evaluated._object_hash = before._object_hash
                and {{ tidemark.values_equal([
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
        {%- if slices == 1 %}
        select
            *,
            {{ tidemark._uncompiled_constant(last_op) }} + row_number() over (order by _is_put, bucket, row_key) as _seq
        from differences
        {%- else %}
        select
            *,
            {{ tidemark._uncompiled_constant(last_op) }} + 1 + _slice + {{ slices }}L * (
                row_number() over (partition by _slice order by _is_put, bucket, row_key, object_type, object_id) - 1
            ) as _seq
        from (
            select
                *,
                pmod(xxhash64(bucket, object_type, object_id), {{ slices }}) as _slice
            from differences
        )
        {%- endif %}
    )

    select
        bucket,
        object_type,
        object_id,
        row_key,
        {%- for column in columns %}
        {{ tidemark.quote_identifier(column.name) }},
        {%- endfor %}
        {{ tidemark.row_key_to_int('row_key') }} as _key_number,
        if(_is_put, _seq, -_seq) as _op_id,
        _replaces,
        _digest_high,
        _digest_low,
        {{ tidemark.checksum("if(_is_put, lpad(hex(_digest_high), 16, '0'), sha2(concat('delete.', row_key), 256))") }} as _checksum,
        {{ tidemark._uncompiled_constant(tidemark.newest_checkpoint(plan.positions)) }} as _checkpoint_id
    from numbered
    {%- if slices > 1 %}
    order by bucket, row_key
    {%- endif %}
{%- endmacro %}

{#- A number that is the same for every row of this run. Written so that it is not part of the code that Spark generates
    (see `in_checkpoints`). -#}
{% macro _uncompiled_constant(number) -%}
    array({{ number }}L, {{ number }}L)[int(_is_put)]
{%- endmacro %}
