{#-
  How a definition's inputs are: {waiting: [names of those that are not ready], changed: whether a row of theirs changed
  since the mark}. An input is ready when every generation of it that has not ended has its newest snapshot admitted.
-#}
{% macro input_state(definition, mine, standing) -%}
    {%- if not execute or not tidemark.is_built(tidemark.core_relation("row_state")) -%}
        {{ return({'waiting': definition.inputs | map(attribute='table') | list, 'changed': false}) }}
    {%- endif -%}
    {%- set query -%}
        with inputs as (
            select *
            from
                values
                {%- for input in definition.inputs %}
                (
                    '{{ input.source }}',
                    {{ tidemark.literal(input.table) }},
                    {{ mine.get(input.source, {}).get('checkpoint_id', 0) }}L,
                    {{ standing.get(input.source, {}).get('checkpoint_id', 0) }}L
                ){{ ',' if not loop.last }}
                {%- endfor %}
                as inputs (source, table_name, since, upto)
        ),

        decided as (
            select
                inputs.source,
                inputs.table_name,
                max_by(decisions.status, decisions.checkpoint_id) as status
            from inputs
            inner join {{ tidemark.core_relation('tables') }} as decisions
                on
                    inputs.source = decisions.source
                    and inputs.table_name = decisions.table_name
                    and decisions.checkpoint_id <= inputs.upto
            group by inputs.source, inputs.table_name, decisions.table_id
        )

        select
            concat(inputs.source, '.', inputs.table_name) as name,
            not exists (
                select 1
                from decided
                where decided.source = inputs.source and decided.table_name = inputs.table_name
            )
            or exists (
                select 1
                from decided
                where
                    decided.source = inputs.source
                    and decided.table_name = inputs.table_name
                    and decided.status = 'waiting'
            ) as is_waiting,
            exists (
                select 1
                from {{ tidemark.core_relation('row_state') }} as row_state
                where
                    row_state.source = inputs.source
                    and row_state.table_name = inputs.table_name
                    and row_state.checkpoint_id > inputs.since
                    and {{ tidemark._touches(definition, mine) }}
            ) as has_changed
        from inputs
    {%- endset -%}
    {%- set waiting = [] -%}
    {%- set changed = [] -%}
    {%- for row in run_query(query) -%}
        {%- if row['is_waiting'] -%}{%- do waiting.append(row['name']) -%}{%- endif -%}
        {%- if row['has_changed'] -%}{%- do changed.append(row['name']) -%}{%- endif -%}
    {%- endfor -%}
    {{ return({'waiting': waiting, 'changed': changed | length > 0}) }}
{%- endmacro %}

{#- The rows of a definition's inputs that changed since its mark, as a predicate of literals on `row_state`. -#}
{% macro _touches(definition, mine) -%}
    (
        {%- for input in definition.inputs %}
        {{ 'or ' if not loop.first }}(
            row_state.source = '{{ input.source }}'
            and row_state.table_name = {{ tidemark.literal(input.table) }}
            and row_state.checkpoint_id > {{ mine.get(input.source, {}).get('checkpoint_id', 0) }}
        )
        {%- endfor %}
    )
{%- endmacro %}
