{#-
  At the start of a run (on-run-start): retires the tables of definitions whose models are now of another kind, if the
  run builds these models. dbt replaces a table by a table or view, but keeps the table's properties: the new rows
  would be staged on the run's branch and never published. Other kinds would append to the old rows. Concurrent runs
  that have staged changes of the definition are refused (`invalidate_published`). Its log stays until it is pruned.
-#}
{% macro retire_replaced_buckets() -%}
    {%- for unique_id in (selected_resources if execute else []) -%}
        {%- set node = graph.nodes.get(unique_id, {}) -%}
        {%- if node.resource_type == 'model' and not tidemark.run().graph.publishes(unique_id) -%}
            {%- set relation = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
            {%- set is_definition_table = tidemark.is_bucket_table(relation) and tidemark.is_staged(relation) -%}
            {%- if is_definition_table and node.alias in tidemark.watermarks() -%}
                {%- do adapter.invalidate_published(node.alias, relation | string, dropped=true) -%}
                {%- if node.config.materialized in ['table', 'view'] -%}
                    {%- do tidemark.set_staged(relation, false) -%}
                {%- else -%}
                    {%- do tidemark.drop_table_or_view(relation) -%}
                {%- endif -%}
            {%- elif is_definition_table -%}
                {%- do tidemark.drop_table_or_view(relation) -%}
            {%- endif -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{#- Whether a relation is a definition's table, by the columns in dbt's relation cache: a model of another kind may have
    replaced it. `column`: a column that such a table has. -#}
{% macro is_bucket_table(relation, column='_op_id') -%}
    {%- set columns = adapter.columns_at_start(relation | string) -%}
    {#- dbt knows no columns of a table that this run has created. -#}
    {{ return(tidemark.relation_exists(relation) and (not columns or column in columns)) }}
{%- endmacro %}

{#- Drops the table, or else the view, if it exists: dbt does not know the views of an Iceberg catalog. -#}
{% macro drop_table_or_view(relation) -%}
    {%- set cached = load_relation(relation) -%}
    {%- if cached is none -%}
        {%- do run_query('drop view if exists ' ~ relation) -%}
    {%- else -%}
        {%- do run_query('drop table if exists ' ~ relation ~ ' purge') -%}
        {%- do adapter.cache_dropped(cached) -%}
    {%- endif -%}
{%- endmacro %}

{#- Whether writes to a table go to the run's branch. A model that selects from a bucket may have all of its columns,
    but is not staged. -#}
{% macro is_staged(relation) -%}
    {{ return(run_query('show tblproperties ' ~ relation ~ " ('write.wap.enabled')")[0]['value'] == 'true') }}
{%- endmacro %}

{#- Sets whether writes to a table go to the run's branch. -#}
{% macro set_staged(relation, staged) -%}
    {%- do run_query('alter table ' ~ relation ~ " set tblproperties ('write.wap.enabled' = '" ~ staged | lower ~ "')") -%}
{%- endmacro %}
