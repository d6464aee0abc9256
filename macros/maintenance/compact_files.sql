{#- Compacts a published table's small files, and rewrites files of which many rows are deleted, on a branch. A
    definition's files are sorted, so that few of them hold a bucket. -#}
{% macro compact_files(model, table, deleted_share, small_files) -%}
    {%- set counts = tidemark._file_counts(table) -%}
    {%- if counts.small >= small_files or counts.deleted > deleted_share * counts.rows -%}
        {%- set is_definition = tidemark.run().published(model).definition_hash -%}
        {%- set order = '`bucket`, op_id' if table.endswith('__ops') else '`bucket`, _op_id' -%}
        {%- do tidemark.publish_maintenance(
            model, table,
            [
                'alter table ' ~ adapter.qualified_name(table) ~ ' create branch ' ~ adapter.branch(),
                tidemark._rewrite_files(table, deleted_share, small_files, adapter.branch(), order if is_definition),
            ],
            'files rewritten, ' ~ counts.small ~ ' were small and ' ~ counts.deleted ~ ' of their ' ~ counts.rows ~ ' rows deleted'
        ) -%}
    {%- endif -%}
{%- endmacro %}

{#- The same for `core.releases`, on main, because a release is committed by this table. A concurrent run that is about
    to publish finds main moved, and is refused. -#}
{% macro compact_releases(small_files) -%}
    {%- set releases = tidemark.get_core_relation('releases') | string -%}
    {%- if tidemark.watermarks() and tidemark._file_counts(releases).small >= small_files -%}
        {%- do run_query(tidemark._rewrite_files(releases, 1, small_files)) -%}
        {%- do log(releases ~ ': files rewritten', info=true) -%}
    {%- endif -%}
{%- endmacro %}

{#- Counts from a table's metadata: {small: data files under 16 MiB, rows, deleted: rows deleted by deletion vectors}.
    -#}
{% macro _file_counts(table) -%}
    {%- set query -%}
        select
            count_if(content = 0 and file_size_in_bytes < 16777216) as small,
            coalesce(sum(if(content = 0, record_count, 0)), 0) as all_rows,
            coalesce(sum(if(content = 1, record_count, 0)), 0) as deleted
        from {{ table }}.files
    {%- endset -%}
    {%- set counts = run_query(query)[0] -%}
    {{ return({'small': counts['small'] | int, 'rows': counts['all_rows'] | int, 'deleted': counts['deleted'] | int}) }}
{%- endmacro %}

{% macro _rewrite_files(table, deleted_share, small_files, branch='main', order=none) -%}
    call system.rewrite_data_files(
        table => '{{ adapter.qualified_name(table) }}',
        branch => '{{ branch }}',
        {%- if order %}
        strategy => 'sort',
        sort_order => '{{ order }}',
        {%- endif %}
        options => map(
            'min-input-files', '{{ small_files }}',
            'min-file-size-bytes', '16777216',
            'target-file-size-bytes', '134217728',
            'max-file-size-bytes', '9223372036854775807',
            'delete-ratio-threshold', '{{ deleted_share }}'
        )
    )
{%- endmacro %}
