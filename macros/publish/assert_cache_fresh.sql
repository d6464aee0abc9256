{#-
  Refuses a run if dbt's list of tables differs from the catalog's: the run would create existing tables again, and
  duplicate their rows. If a table is dropped while Spark lists the schema, dbt-spark takes Spark's error for a schema
  without tables; and another run may have created and published tables since. `tables`: those that must be listed if
  they exist, as `schema.table`.
-#}
{% macro assert_cache_fresh(tables) -%}
    {%- set unlisted = [] -%}
    {%- for table in tables if not tidemark.table_exists(table) -%}{%- do unlisted.append(table) -%}{%- endfor -%}
    {%- set schemas = [] -%}
    {%- for table in unlisted if table.split('.')[0] not in schemas -%}{%- do schemas.append(table.split('.')[0]) -%}{%- endfor -%}
    {%- for schema in schemas if run_query("show databases like '" ~ schema ~ "'").rows | length -%}
        {%- for row in run_query('show tables in ' ~ schema) if schema ~ '.' ~ row['tableName'] in unlisted -%}
            {{ exceptions.raise_compiler_error(
                'The tables of ' ~ schema ~ ' changed while dbt listed them (' ~ row['tableName'] ~ '): another process creates or drops tables. Run it again.'
            ) }}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}

{#- The tables of all models with a watermark: those of `core`, and the rows and the log of each definition of the
    project. -#}
{% macro published_tables() -%}
    {%- set tables = [] -%}
    {%- for node in graph.nodes.values() if node.name in tidemark.watermarks() and tidemark.is_staged_model(node) -%}
        {%- do tables.extend(tidemark.model_tables(node)) -%}
    {%- endfor -%}
    {{ return(tables) }}
{%- endmacro %}
