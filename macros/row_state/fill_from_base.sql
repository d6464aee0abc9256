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
