{#- The maintenance of the models' tables, for `tidemark run` and `tidemark maintain`: see `Maintenance` in
    dbt/adapters/tidemark. It logs a line for each table that it changed, or left to the next maintenance. With `first`, the last
    line may be the number of the next step. -#}
{% macro maintain(superseded_share, small_files, keep_seconds, iceberg_snapshot_retention_seconds, first=none) -%}
    {%- set arguments = {
        'superseded_share': superseded_share,
        'small_files': small_files,
        'keep_seconds': keep_seconds,
        'iceberg_snapshot_retention_seconds': iceberg_snapshot_retention_seconds,
    } -%}
    {%- do tidemark.maintenance_step('maintain', {'arguments': arguments, 'first': first}) -%}
{%- endmacro %}
