{#- What the query gives, in the shape of a bucket; of the changed rows only, where the scope is 'changes'. -#}
{% macro evaluated_objects(sql, settings, columns, plan) -%}
    select
        {{ tidemark.bucket_name(settings) }} as bucket,
        {{ tidemark.literal(settings.object_type) }} as object_type,
        {{ tidemark.object_id(settings) }} as object_id,
        {%- for column in columns %}
        {{ tidemark.quoted(column.name) }},
        {%- endfor %}
        {{ tidemark.json_of_strings(settings.unique_key) if settings.unique_key else '_row_key' }} as row_key
    from (
        {{ tidemark.only_changed(sql, plan) }}
    )
{%- endmacro %}

{#- The bucket of a row, made of its columns. -#}
{% macro bucket_name(settings) -%}
    concat({{ tidemark.literal(settings.name) }}, {{ tidemark.json_of_strings(settings.bucket_by) }})
{%- endmacro %}

{#- The id of the object that a row is. -#}
{% macro object_id(settings) -%}
    cast({{ tidemark.quoted(settings.object_id) }} as string)
{%- endmacro %}

{#- The objects, each of which is there once, and the digest of each; two that nothing tells apart would replace each other. They
    are shuffled and sorted once, by a number, for this and for the comparison with the rows before. -#}
{% macro told_apart(settings, columns) -%}
    select
        * except (_alike, _sha256),
        cast(conv(substr(_sha256, 1, 16), 16, -10) as bigint) as _digest_high,
        cast(conv(substr(_sha256, 17, 16), 16, -10) as bigint) as _digest_low
    from (
        select
            *,
            sha2(
                concat(
                    'put.', {{ tidemark.literal(settings.object_type) }},
                    '.', coalesce(object_id, ''),
                    '.', {{ tidemark.data_json(columns | map(attribute='name')) }}
                ), 256
            ) as _sha256
        from (
            select
                *,
                count(*) over (partition by _place, bucket, object_type, object_id, row_key) as _alike
            from (
                select
                    *,
                    {{ tidemark.object_place() }} as _place
                from objects
                distribute by _place
            )
        )
    )
    where if(
        _alike = 1, true, cast(raise_error(concat(
            'Two rows of the bucket ', bucket, ' have the id ', coalesce(object_id, 'NULL'), ' and the key ', row_key,
            '. Let meta.unique_key name the columns that tell the rows apart, or select each row once.'
        )) as boolean)
    )
{%- endmacro %}

{#- A query that evaluates all of them and gives one number: whether it fails. -#}
{% macro evaluation(sql, settings, columns, plan) -%}
    with objects as (
        {{ tidemark.evaluated_objects(sql, settings, columns, plan) }}
    )

    select max(_digest_high) as highest
    from (
        {{ tidemark.told_apart(settings, columns) }}
    )
{%- endmacro %}

{#- A number for an object's place: one place has one number, and so, now and then, have two. -#}
{% macro object_place() -%}
    xxhash64(bucket, object_type, object_id, row_key)
{%- endmacro %}
