{#-
  The maintenance of the models' tables, for `tidemark maintain`. Each table is a release of its own (see
  `publish_maintenance`), so completed steps do not wait for later ones, and readers see a table before or after.

  - `superseded_share`: the share of superseded ops from which a log is compacted, of deleted rows from which a file is rewritten,
    and of superseded rows from which releases and checkpoints are purged
  - `small_files`: the number of small files from which they are compacted
  - `keep_seconds`: how long tombstones stay after every definition is past them; also how long releases and checkpoints stay
  - `iceberg_snapshot_retention_seconds`: how long Iceberg snapshots stay, and so the releases that name them

  Each step logs a line.
-#}
{% macro maintain(superseded_share, small_files, keep_seconds, iceberg_snapshot_retention_seconds) -%}
    {%- do tidemark.finish_interrupted_release() -%}
    {%- set published = tidemark.maintained_tables() -%}
    {#- A log whose rows were dropped manually is created again by the next run. -#}
    {%- for item in published if item.is_log and tidemark.table_exists(item.table[:-5]) -%}
        {%- do tidemark.compact_log(item.model, item.table, superseded_share) -%}
    {%- endfor -%}
    {%- do tidemark.purge_tombstones(keep_seconds) -%}
    {%- do tidemark.purge_checkpoints(keep_seconds, superseded_share) -%}
    {%- for item in published -%}
        {%- do tidemark.compact_files(item.model, item.table, superseded_share, small_files) -%}
    {%- endfor -%}
    {%- do tidemark.purge_releases([keep_seconds, iceberg_snapshot_retention_seconds] | max, superseded_share) -%}
    {%- do tidemark.compact_releases(small_files) -%}
{%- endmacro %}

{#- The existing tables of all models with a watermark that are still of these kinds, as [{model, table, is_log}]; a
    definition's log comes before its rows. -#}
{% macro maintained_tables() -%}
    {%- set tables = [] -%}
    {%- set watermarks = tidemark.watermarks() -%}
    {%- set model_names = [] -%}
    {%- for unique_id, node in graph.nodes.items() if tidemark.run().graph.publishes(unique_id) -%}
        {%- do model_names.append(node.name) -%}
    {%- endfor -%}
    {%- if watermarks -%}
        {%- set releases = tidemark.get_core_relation('releases') -%}
        {%- for row in run_query('select distinct model, `table` from ' ~ releases ~ ' order by model, `table` desc') -%}
            {%- if row['model'] in watermarks and row['model'] in model_names and tidemark.table_exists(row['table']) -%}
                {%- set is_log = row['table'].endswith('__ops') -%}
                {%- do tables.append({'model': row['model'], 'table': row['table'], 'is_log': is_log}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(tables) }}
{%- endmacro %}
