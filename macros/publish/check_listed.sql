{#-
  Refuses a run whose list of tables is not what the catalogue has: it would make anew what is there, and double its rows. dbt-spark
  takes Spark's error for a table that is dropped while it is listed for a schema without tables; and another run may have made and
  published some since. `tables`: those that have to be known if they are there, as `schema.table`.
-#}
{% macro check_listed(tables) -%}
    {%- set unlisted = [] -%}
    {%- for table in tables if not tidemark.is_built_table(table) -%}{%- do unlisted.append(table) -%}{%- endfor -%}
    {%- for schema in ['core', 'buckets'] if unlisted and run_query("show databases like '" ~ schema ~ "'").rows | length -%}
        {%- for row in run_query('show tables in ' ~ schema) if schema ~ '.' ~ row['tableName'] in unlisted -%}
            {{ exceptions.raise_compiler_error(
                'The tables of ' ~ schema ~ ' changed while dbt listed them (' ~ row['tableName'] ~ '): another run or person makes or drops some. Run it again.'
            ) }}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}

{#- The tables of all models with a mark: those of `core`, and of each definition its rows and its log. -#}
{% macro marked_tables() -%}
    {%- set tables = [] -%}
    {%- for name, model in tidemark.marks().items() -%}
        {%- if (model.values() | first).definition_hash is none -%}
            {%- do tables.append('core.' ~ name) -%}
        {%- else -%}
            {%- do tables.extend(['buckets.' ~ name, 'buckets.' ~ name ~ '__ops']) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(tables) }}
{%- endmacro %}
