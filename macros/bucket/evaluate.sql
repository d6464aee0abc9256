{#-
  The statement that evaluates a definition and appends the differences to its rows: the rows that are to be there, and for
  each that is to go a mark with a negative op id, until `delete_superseded_rows`. Op ids go on from `last_op`.
-#}
{% macro insert_differences(relation, sql, settings, columns, plan, change, last_op) -%}
    insert into {{ relation }} (
        bucket, object_type, object_id, row_key,
        {%- for column in columns %} {{ tidemark.quoted(column.name) }},{% endfor %} _op_id, _replaces, _digest_high, _digest_low,
        _checksum, _checkpoint_id
    )
    with objects as (
        {{ tidemark._evaluated(sql, settings, columns, plan) }}
    ),

    evaluated as (
        {{ tidemark._told_apart(settings, columns) }}
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
        {{ tidemark._before(relation, settings, plan) }}
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
        full outer join (select *, {{ tidemark._place() }} as _place from before) as before
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

{#- What the query gives, in the shape of a bucket; of the changed rows only, where the scope is 'changes'. -#}
{% macro _evaluated(sql, settings, columns, plan) -%}
    select
        concat({{ tidemark.literal(settings.name) }}, {{ tidemark.json_of_strings(settings.bucket_by) }}) as bucket,
        {{ tidemark.literal(settings.object_type) }} as object_type,
        cast({{ tidemark.quoted(settings.object_id) }} as string) as object_id,
        {%- for column in columns %}
        {{ tidemark.quoted(column.name) }},
        {%- endfor %}
        {{ tidemark.json_of_strings(settings.key) if settings.key else '_row_key' }} as row_key
    from (
        {{ tidemark.only_changed(sql, plan) }}
    )
{%- endmacro %}

{#- The objects, each of which is there once, and the digest of each; two that nothing tells apart would replace each other. They
    are shuffled and sorted once, by a number, for this and for the comparison with the rows before. -#}
{% macro _told_apart(settings, columns) -%}
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
                    {{ tidemark._place() }} as _place
                from objects
                distribute by _place
            )
        )
    )
    where if(
        _alike = 1, true, cast(raise_error(concat(
            'Two rows of the bucket ', bucket, ' have the id ', coalesce(object_id, 'NULL'), ' and the key ', row_key,
            '. Let meta.key name the columns that tell the rows apart, or select each row once.'
        )) as boolean)
    )
{%- endmacro %}

{#- A number for an object's place: one place has one number, and so, now and then, have two. -#}
{% macro _place() -%}
    xxhash64(bucket, object_type, object_id, row_key)
{%- endmacro %}

{#- The definition's query, reading only the rows that changed since its mark if the plan says so. -#}
{% macro only_changed(sql, plan) -%}
    {%- if plan.scope == 'changes' -%}
        {%- set since = plan.since[plan.definition.inputs[0].source].checkpoint_id -%}
        {%- set changed = tidemark.of_checkpoints('_checkpoint_id', since, tidemark.newest(plan.standing)) -%}
        {{ sql | replace(tidemark.changed_rows_mark(), 'where ' ~ changed) }}
    {%- else -%}
        {{ sql }}
    {%- endif -%}
{%- endmacro %}

{#- The rows that the evaluated ones are compared with: all of them, or those of the changed rows' keys. Their data are not
    read: the digest tells whether they are the same. -#}
{% macro _before(relation, settings, plan) -%}
    select
        bucket,
        {% if plan.scope == 'changes' -%}
        {#- The definition's own, as it is unchanged: one column less to look through. -#}
        {{ tidemark.literal(settings.object_type) }} as object_type,
        {%- else -%}
        object_type,
        {%- endif %}
        object_id,
        row_key,
        _op_id,
        _digest_high,
        _digest_low
    from {{ relation }}
    {%- if plan.scope == 'changes' %}
    left semi join (
        select row_state.row_key as changed_key
        from {{ tidemark.core_relation('row_state') }} as row_state
        where {{ tidemark._touches(plan) }}
    ) as changed
        on {{ tidemark.same_key([[tidemark._key_of_copies('row_key'), 'changed.changed_key']]) }}
    {%- endif %}
{%- endmacro %}

{#- The key of a row's copies: those of a row without a key are told apart by `#2`, `#3` behind it. -#}
{% macro _key_of_copies(row_key) -%}
    if({{ row_key }} like '%]', {{ row_key }}, regexp_replace({{ row_key }}, '#[0-9]+$', ''))
{%- endmacro %}

{#- The rows of a definition's inputs that it evaluates, as a predicate on `row_state`: those that changed since its mark, or all. -#}
{% macro _touches(plan) -%}
    {%- set mine = plan.since if plan.scope == 'changes' else {} -%}
    {%- set newest = tidemark.newest(plan.standing) -%}
    (
        {%- for input in plan.definition.inputs %}
        {{ 'or ' if not loop.first }}(
            row_state.source = '{{ input.source }}'
            and row_state.table_name = {{ tidemark.literal(input.table) }}
            and {{ tidemark.of_checkpoints('row_state.checkpoint_id', mine.get(input.source, {}).get('checkpoint_id', 0), newest) }}
        )
        {%- endfor %}
    )
{%- endmacro %}
