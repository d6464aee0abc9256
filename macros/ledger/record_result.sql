{#- Ends a materialization: passes to `publish` the model's new positions (`positions`), the release that it is based on
    (`seen`, the newest one) and the tables that it staged rows in. They are sent in the result's `code`, the only field
    of dbt's result that a materialization can set and an on-run-end hook can read. -#}
{% macro record_result(positions, message, staged=[], definition_hash=none, columns=[], view_tables={}, rows=0, evaluation=none) -%}
    {%- do store_raw_result(
        name='main',
        message=message,
        code=tojson({
            'seen': tidemark.newest_release(tidemark.watermarks()),
            'positions': positions,
            'staged': staged,
            'definition_hash': definition_hash,
            'columns': columns,
            'view_tables': view_tables,
            'evaluation': evaluation,
        }),
        rows_affected=rows
    ) -%}
{%- endmacro %}
