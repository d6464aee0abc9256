{#- Rejects an evaluation over a view of views that this run does not build, and that was created when those had other
    columns: Spark keeps a view's columns. When such a view is created again its text stays the same, so the definition
    would not be evaluated again. -#}
{% macro check_views(model) -%}
    {%- for node in tidemark.run().graph.upstream(model) if node.config.materialized == 'view' and not node.config.meta.get('table') -%}
        {%- if node.unique_id not in selected_resources -%}
            {%- set view = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
            {%- if tidemark.describe_columns(view) != tidemark.describe_columns('query ' ~ adapter.deployed_sql(node)) -%}
                {%- do tidemark.raise_definition_error(model, "reads '" ~ node.name ~ "', which was created when its inputs had other columns", 'Create it again: dbt run --select ' ~ node.name ~ ' ' ~ model.name) -%}
            {%- endif -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}
