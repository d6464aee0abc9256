{#-
  At the start of a run (on-run-start): gives up the tables of definitions whose models are of another kind by now, if the run is
  to make these. For a table or a view dbt replaces them, but leaves a table's properties: the new rows would be staged on the run's
  branch, which nobody publishes. Other kinds would add to them. Runs under way that staged something of the definition are
  refused (`tear`); its log stays until it is pruned.
-#}
{% macro hand_over() -%}
    {%- for unique_id in (selected_resources if execute else []) -%}
        {%- set node = graph.nodes.get(unique_id, {}) -%}
        {%- if node.resource_type == 'model' and not tidemark.is_definition(node) and node.schema == 'buckets' -%}
            {%- set relation = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
            {%- set is_ours = tidemark.is_bucket_table(relation) and tidemark.is_staged(relation) -%}
            {%- if is_ours and node.alias in tidemark.marks() -%}
                {%- do tidemark.tear(node.alias, relation, tidemark.dropped_tables(node.alias, relation)) -%}
                {%- if node.config.materialized in ['table', 'view'] -%}
                    {%- do tidemark.set_staged(relation, false) -%}
                {%- else -%}
                    {%- do tidemark.drop_whatever(relation) -%}
                {%- endif -%}
            {%- elif is_ours -%}
                {%- do tidemark.drop_whatever(relation) -%}
            {%- endif -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}

{#- Whether a definition's rows are a table that is kept here, by the columns that dbt found: another kind of model may have taken
    its name since. `column`: one that such a table has. -#}
{% macro is_bucket_table(relation, column='_op_id') -%}
    {%- set found = load_relation(relation) -%}
    {#- Of one that this run has made dbt knows no columns. -#}
    {{ return(found is not none and modules.re.search('(?m)(?:^| )' ~ column ~ ': ', found.information or ' ' ~ column ~ ': ') is not none) }}
{%- endmacro %}

{#- Drops a table, or else a view, if one is there: dbt knows of no views in an Iceberg catalog. -#}
{% macro drop_whatever(relation) -%}
    {%- set found = load_relation(relation) -%}
    {%- if found is none -%}
        {%- do run_query('drop view if exists ' ~ relation) -%}
    {%- else -%}
        {%- do run_query('drop table if exists ' ~ relation ~ ' purge') -%}
        {%- do adapter.cache_dropped(found) -%}
    {%- endif -%}
{%- endmacro %}

{#- Whether a table's writes go to the run's branch. A model over a bucket may have all of its columns, but is not staged. -#}
{% macro is_staged(relation) -%}
    {{ return(run_query('show tblproperties ' ~ relation ~ " ('write.wap.enabled')")[0]['value'] == 'true') }}
{%- endmacro %}

{#- Lets a table's writes go to the run's branch, or not. -#}
{% macro set_staged(relation, staged) -%}
    {%- do run_query('alter table ' ~ relation ~ " set tblproperties ('write.wap.enabled' = '" ~ staged | lower ~ "')") -%}
{%- endmacro %}
