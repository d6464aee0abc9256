{#- Refuses to evaluate over a view of views that this run does not make, and that stands as it was made when those had other columns:
    Spark keeps a view's columns. Its text stays the same once it is made anew, so the definition would not be evaluated again. -#}
{% macro check_views(model) -%}
    {%- for node in tidemark.read_by(model) if node.config.materialized == 'view' and not node.config.meta.get('table') -%}
        {%- if node.unique_id not in selected_resources -%}
            {%- set view = api.Relation.create(schema=node.schema, identifier=node.alias) -%}
            {%- if tidemark._described(view) != tidemark._described('query ' ~ tidemark.view_text(node)) -%}
                {%- do tidemark._refuse(model, "reads '" ~ node.name ~ "', which was made when what it reads had other columns", 'Make it anew: dbt run --select ' ~ node.name ~ ' ' ~ model.name) -%}
            {%- endif -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}
