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
    read: the digest tells whether they are the same. Rows whose key is a number are looked for by it, which takes half of
    the time; only files that have other rows as well are read a second time, for these. -#}
{% macro rows_compared(relation, settings, plan) -%}
    {%- if plan.scope == 'changes' -%}
    {{ tidemark._compared_columns(relation, settings, tidemark.key_of_number('_key_number')) }}
    from {{ relation }}
    left semi join ({{ tidemark._changed_keys(plan) }}) as changed
        on _key_number = {{ tidemark.number_of_key('changed.changed_key') }}
    union all
    {{ tidemark._compared_columns(relation, settings, 'row_key') }}
    from {{ relation }}
    left semi join ({{ tidemark._changed_keys(plan) }}) as changed
        on {{ tidemark.same_key([[tidemark._key_of_copies('row_key'), 'changed.changed_key']]) }}
    where _key_number is null
    {%- else -%}
    select
        bucket,
        object_type,
        object_id,
        row_key,
        _op_id,
        _digest_high,
        _digest_low
    from {{ relation }}
    {%- endif -%}
{%- endmacro %}

{#- What the rows of an unchanged definition are compared by. What stands in texts is made again of whole numbers, as ids often
    are: these are read in a tenth of the time. -#}
{% macro _compared_columns(relation, settings, row_key) -%}
    select
        {{ tidemark.bucket_name(settings) ~ ' as ' if tidemark.are_whole_numbers(relation, settings.bucket_by) }}bucket,
        {{ tidemark.literal(settings.object_type) }} as object_type,
        {{ tidemark.object_id(settings) ~ ' as ' if tidemark.are_whole_numbers(relation, [settings.object_id]) }}object_id,
        {{ row_key }} as row_key,
        _op_id,
        _digest_high,
        _digest_low
{%- endmacro %}

{#- The keys of the rows that a definition evaluates. -#}
{% macro _changed_keys(plan) -%}
    select row_state.row_key as changed_key
    from {{ tidemark.core_relation('row_state') }} as row_state
    where {{ tidemark.touched_rows(plan) }}
{%- endmacro %}

{#- Whether some columns of a definition's rows are whole numbers, as dbt knows of the table without asking. Their text is the same
    for ever; that of a time or a float depends on settings and on Java. -#}
{% macro are_whole_numbers(relation, columns) -%}
    {%- set found = load_relation(relation) -%}
    {%- for column in columns -%}
        {%- set pattern = '(?im)^(?: \\|-- )?' ~ modules.re.escape(column) ~ ': (?:int|integer|bigint|long)\\b' -%}
        {%- if not modules.re.search(pattern, (found.information if found else none) or '') -%}{{ return(false) }}{%- endif -%}
    {%- endfor -%}
    {{ return(true) }}
{%- endmacro %}

{#- The key of a row's copies: those of a row without a key are told apart by `#2`, `#3` behind it. -#}
{% macro _key_of_copies(row_key) -%}
    if({{ row_key }} like '%]', {{ row_key }}, regexp_replace({{ row_key }}, '#[0-9]+$', ''))
{%- endmacro %}

{#- The rows of a definition's inputs that it evaluates, as a predicate on `row_state`: those that changed since its mark, or all. -#}
{% macro touched_rows(plan) -%}
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
