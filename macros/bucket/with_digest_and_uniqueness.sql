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
                count(*) over (partition by _object_hash, bucket, object_type, object_id, row_key) as _alike
            from (
                select
                    *,
                    {{ tidemark.object_hash() }} as _object_hash
                from objects
                distribute by _object_hash
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
