{#- One map laid over another: its values win, NULLs too, and what it lacks shines through. Keys stay in the order of the map below,
    so that a row's map is the same in however many steps it came about. -#}
{% macro laid_over(below, above) -%}
    coalesce(
        map_zip_with(
            {{ below }},
            transform_values({{ above }}, (k, v) -> struct(v)),
            (k, low, high) -> if(high is null, low, high.v)
        ),
        {{ above }}
    )
{%- endmacro %}

{#- The keys of the rows that may have values that kept records lack: their own and, where a key has changed, the previous ones. -#}
{% macro lacking_keys(moved) -%}
    select source, table_id, row_key from kept where is_partial
    {%- if moved %}
    union
    select source, table_id, old_row_key from kept where is_partial and old_row_key is not null
    {%- endif %}
{%- endmacro %}

{#- The records `laid`; those that lack values are laid over the rows that `row_state` has under their `key`. Other tables
    are not read, and only the rows that are needed are joined: Spark estimates a row as small whatever its values are, and would
    broadcast all of them. -#}
{% macro laid_over_rows(row_state, key, tables, moved) -%}
    select{{ ' /*+ merge(base) */' if tidemark.is_built(row_state) }}
        laid.* except (columns),
        {% if tidemark.is_built(row_state) -%}
        if(laid.is_partial, {{ tidemark.laid_over('base.columns', 'laid.columns') }}, laid.columns) as columns
    from laid
    left join (
        select present.*
        from {{ tidemark.rows_of_tables(row_state, tables) }} as present
        left semi join ({{ tidemark.lacking_keys(moved) }}) as lacking using (source, table_id, row_key)
    ) as base
        on
            laid.source = base.source
            and laid.table_id = base.table_id
            and laid.{{ key }} = base.row_key
            and laid.is_partial
        {%- else -%}
        laid.columns
    from laid
        {%- endif %}
{%- endmacro %}

{#- The columns of a group's records, laid over each other in the order of the log. -#}
{% macro overlaid() -%}
    aggregate(
        array_sort(collect_list(struct(place, columns)), (l, r) -> case when l.place < r.place then -1 else 1 end),
        cast(map() as map<string, string>),
        (below, above) -> {{ tidemark.laid_over('below', 'above.columns') }}
    )
{%- endmacro %}
