{#- Ends a materialization: hands over to `publish` how far the model came (`standing`), what it was based on (`seen`, the
    newest release) and the tables that it staged rows in. It travels in the result's `code`, the one field of dbt's
    result that a materialization can fill and an on-run-end hook can read. -#}
{% macro report(standing, message, staged=[], definition_hash=none, columns=[], view_tables={}, rows=0, evaluation=none) -%}
    {%- do store_raw_result(
        name='main',
        message=message,
        code=tojson({
            'seen': tidemark.newest_release(tidemark.marks()),
            'standing': standing,
            'staged': staged,
            'definition_hash': definition_hash,
            'columns': columns,
            'view_tables': view_tables,
            'evaluation': evaluation,
        }),
        rows_affected=rows
    ) -%}
{%- endmacro %}
