{#- The result of the query, with the columns of a bucket. If the scope is 'changes', of the changed rows only. -#}
{% macro evaluated_objects(sql, settings, columns, plan) -%}
    select
        {{ tidemark.bucket_name(settings) }} as bucket,
        {{ tidemark.literal(settings.object_type) }} as object_type,
        {{ tidemark.object_id(settings) }} as object_id,
        {%- for column in columns %}
        {{ tidemark.quote_identifier(column.name) }},
        {%- endfor %}
        {{ tidemark.json_of_strings(settings.unique_key) if settings.unique_key else '_row_key' }} as row_key
    from (
        {{ tidemark.with_change_filter(sql, plan) }}
    )
{%- endmacro %}

{#- The name of a row's bucket, computed from its columns. -#}
{% macro bucket_name(settings) -%}
    concat({{ tidemark.literal(settings.name) }}, {{ tidemark.json_of_strings(settings.bucket_by) }})
{%- endmacro %}

{#- The id of a row's object. -#}
{% macro object_id(settings) -%}
    cast({{ tidemark.quote_identifier(settings.object_id) }} as string)
{%- endmacro %}

{#- The objects with their digests. Fails if two objects have the same bucket, type, id and key: each would replace the
    other. The objects are shuffled and sorted by an integer once, both for this check and for the comparison with the
    existing rows. -#}
{% macro with_digest_and_uniqueness(settings, columns) -%}
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
                    {{ tidemark.object_hash() }} as _place
                from objects
                distribute by _place
            )
        )
    )
    where if(
        _alike = 1, true, cast(raise_error(concat(
            'Two rows of the bucket ', bucket, ' have the id ', coalesce(object_id, 'NULL'), ' and the key ', row_key,
            '. Set meta.unique_key to columns that identify a row, or select each row once.'
        )) as boolean)
    )
{%- endmacro %}

{#- A query that evaluates all objects and returns one number: it shows whether the evaluation fails. -#}
{% macro dry_run_evaluation(sql, settings, columns, plan) -%}
    with objects as (
        {{ tidemark.evaluated_objects(sql, settings, columns, plan) }}
    )

    select max(_digest_high) as highest
    from (
        {{ tidemark.with_digest_and_uniqueness(settings, columns) }}
    )
{%- endmacro %}

{#- A hash of an object's identity. Equal identities have equal hashes; rarely, different ones have too. -#}
{% macro object_hash() -%}
    xxhash64(bucket, object_type, object_id, row_key)
{%- endmacro %}
