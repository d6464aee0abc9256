{#- Puts a published table's small files together, and rewrites those of which many rows are deleted, on a branch. Those of a
    definition are sorted, so that a bucket lies in few of them. -#}
{% macro compact_files(model, table, deleted_share, small_files) -%}
    {%- set found = tidemark._file_counts(table) -%}
    {%- if found.small >= small_files or found.deleted > deleted_share * found.rows -%}
        {%- set is_definition = tidemark.marks()[model].values() | map(attribute='definition_hash') | first -%}
        {%- set order = '`bucket`, op_id' if table.endswith('__ops') else '`bucket`, _op_id' -%}
        {%- do tidemark.publish_upkeep(
            model, table,
            [
                'alter table ' ~ tidemark.whole_name(table) ~ ' create branch ' ~ tidemark.branch(),
                tidemark._rewrite_files(table, deleted_share, small_files, tidemark.branch(), order if is_definition),
            ],
            'files rewritten, ' ~ found.small ~ ' were small and ' ~ found.deleted ~ ' of their ' ~ found.rows ~ ' rows deleted'
        ) -%}
    {%- endif -%}
{%- endmacro %}

{#- The same of `core.releases`, on main: it is itself what releases are decided by. A run that is about to
    publish finds it moved, and is refused. -#}
{% macro compact_manifests(small_files) -%}
    {%- set releases = tidemark.core_relation('releases') | string -%}
    {%- if tidemark.marks() and tidemark._file_counts(releases).small >= small_files -%}
        {%- do run_query(tidemark._rewrite_files(releases, 1, small_files)) -%}
        {%- do log(releases ~ ': files rewritten', info=true) -%}
    {%- endif -%}
{%- endmacro %}

{#- What a table's metadata say: {small: data files under 16 MiB, rows, deleted: of them, by deletion vectors}. -#}
{% macro _file_counts(table) -%}
    {%- set query -%}
        select
            count_if(content = 0 and file_size_in_bytes < 16777216) as small,
            coalesce(sum(if(content = 0, record_count, 0)), 0) as all_rows,
            coalesce(sum(if(content = 1, record_count, 0)), 0) as deleted
        from {{ table }}.files
    {%- endset -%}
    {%- set found = run_query(query)[0] -%}
    {{ return({'small': found['small'] | int, 'rows': found['all_rows'] | int, 'deleted': found['deleted'] | int}) }}
{%- endmacro %}

{% macro _rewrite_files(table, deleted_share, small_files, branch='main', order=none) -%}
    call system.rewrite_data_files(
        table => '{{ tidemark.whole_name(table) }}',
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
