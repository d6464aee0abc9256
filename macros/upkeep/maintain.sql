{#-
  For `tidemark maintain`: what keeps the models' tables small. Each table is a release of its own (see
  `publish_upkeep`), so nothing is waited for by what is done already, and readers see a table before or after.

  - `superseded_share`: from this share of superseded ops on a log is compacted, of deleted rows on a file rewritten, and of
    superseded rows on manifests and checkpoints are purged
  - `small_files`: from so many of them on they are put together
  - `keep_seconds`: how long tombstones stay after every definition has passed them, and manifests and checkpoints
  - `iceberg_snapshot_retention_seconds`: how long Iceberg snapshots stay, and so the manifests that name them

  Each step says in a line what it did.
-#}
{% macro maintain(superseded_share, small_files, keep_seconds, iceberg_snapshot_retention_seconds) -%}
    {%- do tidemark.recover() -%}
    {%- set published = tidemark.published_tables() -%}
    {#- A log whose rows somebody has dropped is made anew by the next run. -#}
    {%- for each in published if each.is_log and tidemark.is_built_table(each.table[:-5]) -%}
        {%- do tidemark.compact_log(each.model, each.table, superseded_share) -%}
    {%- endfor -%}
    {%- do tidemark.purge_tombstones(keep_seconds) -%}
    {%- do tidemark.purge_checkpoints(keep_seconds, superseded_share) -%}
    {%- for each in published -%}
        {%- do tidemark.compact_files(each.model, each.table, superseded_share, small_files) -%}
    {%- endfor -%}
    {%- do tidemark.purge_manifests([keep_seconds, iceberg_snapshot_retention_seconds] | max, superseded_share) -%}
    {%- do tidemark.compact_manifests(small_files) -%}
{%- endmacro %}

{#- The tables that are there of all models that have a mark and are still of these kinds, as [{model, table, is_log}]; a definition's
    log stands before its rows. -#}
{% macro published_tables() -%}
    {%- set found = [] -%}
    {%- set marks = tidemark.marks() -%}
    {%- set kept = [] -%}
    {%- for node in graph.nodes.values() if tidemark.is_definition(node) or node.config.materialized == 'ledger' -%}
        {%- do kept.append(node.name) -%}
    {%- endfor -%}
    {%- if marks -%}
        {%- set releases = tidemark.core_relation('releases') -%}
        {%- for row in run_query('select distinct model, `table` from ' ~ releases ~ ' order by model, `table` desc') -%}
            {%- if row['model'] in marks and row['model'] in kept and tidemark.is_built_table(row['table']) -%}
                {%- set is_log = row['table'].endswith('__ops') -%}
                {%- do found.append({'model': row['model'], 'table': row['table'], 'is_log': is_log}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(found) }}
{%- endmacro %}
