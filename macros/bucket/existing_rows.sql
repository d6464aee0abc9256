{#- The rows that the evaluated ones are compared with: all of them, or those with the changed rows' keys. Their data
    are not read: the digest shows whether they are equal. Rows whose key is an integer are looked up by it, which takes
    half of the time. Unless all keys are known to be integers, the others are looked up in addition. -#}
{% macro existing_rows(relation, settings, plan) -%}
    {%- if plan.scope == 'changes' -%}
    {{ tidemark._comparison_columns(relation, settings, tidemark.int_to_row_key('_key_number')) }}
    from {{ relation }}
    left semi join ({{ tidemark._changed_keys(plan) }}) as changed
        on _key_number = {{ tidemark.row_key_to_int('changed.changed_key') }}
    {%- if not plan.has_integer_keys %}
    union all
    {{ tidemark._comparison_columns(relation, settings, 'row_key') }}
    from {{ relation }}
    left semi join ({{ tidemark._changed_keys(plan) }}) as changed
        on {{ tidemark.hash_join_on([[tidemark._key_without_copy_number('row_key'), 'changed.changed_key']]) }}
    where _key_number is null
    {%- endif %}
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

{#- The columns by which the rows of an unchanged definition are compared. Text columns are computed again from integers
    where they can be, as ids often are: integers are read in a tenth of the time. -#}
{% macro _comparison_columns(relation, settings, row_key) -%}
    select
        {{ tidemark.bucket_name(settings) ~ ' as ' if adapter.are_integers(relation | string, settings.bucket_by) }}bucket,
        {{ tidemark.literal(settings.object_type) }} as object_type,
        {{ tidemark.object_id(settings) ~ ' as ' if adapter.are_integers(relation | string, [settings.object_id]) }}object_id,
        {{ row_key }} as row_key,
        _op_id,
        _digest_high,
        _digest_low
{%- endmacro %}

{#- The keys of the rows that a definition evaluates. -#}
{% macro _changed_keys(plan) -%}
    select row_state.row_key as changed_key
    from core.row_state as row_state
    where {{ tidemark.input_rows_filter(plan) }}
{%- endmacro %}

{#- The key without a copy number: copies of a row without a key have the suffixes `#2`, `#3`. -#}
{% macro _key_without_copy_number(row_key) -%}
    if({{ row_key }} like '%]', {{ row_key }}, regexp_replace({{ row_key }}, '#[0-9]+$', ''))
{%- endmacro %}
