{#- Merges two maps: the values of `above` win, also NULLs; keys that it lacks keep the values of `below`. Keys keep the
    order of `below`, so that a row's map does not depend on the number of steps. -#}
{% macro merge_maps(below, above) -%}
    coalesce(
        map_zip_with(
            {{ below }},
            transform_values({{ above }}, (k, v) -> struct(v)),
            (k, low, high) -> if(high is null, low, high.v)
        ),
        {{ above }}
    )
{%- endmacro %}

{#- The keys of the rows that may have the values that kept records lack: their own and, if a key has changed, the
    previous ones. -#}
{% macro incomplete_keys(keys_changed) -%}
    select source, table_id, row_key from kept where is_partial
    {%- if keys_changed %}
    union
    select source, table_id, old_row_key from kept where is_partial and old_row_key is not null
    {%- endif %}
{%- endmacro %}

{#- Merges the records `merged` that lack values over the rows of `row_state` with their `key`. Other tables are not
    read, and only the needed rows are joined: Spark assumes that rows are small, whatever their values are, and would
    broadcast all of them. -#}
{% macro fill_from_base(row_state, key, tables, keys_changed) -%}
    select{{ ' /*+ merge(base) */' if is_incremental() }}
        merged.* except (columns),
        {% if is_incremental() -%}
        if(merged.is_partial, {{ tidemark.merge_maps('base.columns', 'merged.columns') }}, merged.columns) as columns
    from merged
    left join (
        select present.*
        from {{ tidemark.rows_in_tables(row_state, tables) }} as present
        left semi join ({{ tidemark.incomplete_keys(keys_changed) }}) as incomplete using (source, table_id, row_key)
    ) as base
        on
            merged.source = base.source
            and merged.table_id = base.table_id
            and merged.{{ key }} = base.row_key
            and merged.is_partial
        {%- else -%}
        merged.columns
    from merged
        {%- endif %}
{%- endmacro %}

{#- The columns of a group's records, merged in the order of the log. -#}
{% macro fold_columns() -%}
    aggregate(
        array_sort(collect_list(struct(place, columns)), (l, r) -> case when l.place < r.place then -1 else 1 end),
        cast(map() as map<string, string>),
        (below, above) -> {{ tidemark.merge_maps('below', 'above.columns') }}
    )
{%- endmacro %}
