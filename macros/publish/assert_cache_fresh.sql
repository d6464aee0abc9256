{#-
  Refuses a run if dbt's list of tables differs from the catalog's: the run would create existing tables again, and
  duplicate their rows. If a table is dropped while Spark lists the schema, dbt-spark takes Spark's error for a schema
  without tables; and another run may have created and published tables since. `tables`: those that must be listed if
  they exist, as `schema.table`.
-#}
{% macro assert_cache_fresh(tables) -%}
    {%- set unlisted = [] -%}
    {%- for table in tables if not tidemark.table_exists(table) -%}{%- do unlisted.append(table) -%}{%- endfor -%}
    {%- for schema in ['core', 'buckets'] if unlisted and run_query("show databases like '" ~ schema ~ "'").rows | length -%}
        {%- for row in run_query('show tables in ' ~ schema) if schema ~ '.' ~ row['tableName'] in unlisted -%}
            {{ exceptions.raise_compiler_error(
                'The tables of ' ~ schema ~ ' changed while dbt listed them (' ~ row['tableName'] ~ '): another process creates or drops tables. Run it again.'
            ) }}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}

{#- The tables of all models with a watermark: those of `core`, and the rows and the log of each definition. -#}
{% macro published_tables() -%}
    {%- set tables = [] -%}
    {%- for name, model in tidemark.watermarks().items() -%}
        {%- if (model.values() | first).definition_hash is none -%}
            {%- do tables.append('core.' ~ name) -%}
        {%- else -%}
            {%- do tables.extend(['buckets.' ~ name, 'buckets.' ~ name ~ '__ops']) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(tables) }}
{%- endmacro %}
