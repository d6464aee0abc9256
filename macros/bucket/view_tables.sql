{#- The table that each staging view below a definition shows, as {view: `<source>.<table>`}. -#}
{% macro view_tables(model) -%}
    {%- set shown = {} -%}
    {%- for node in tidemark.read_by(model) if node.config.meta.get('table') -%}
        {%- do shown.update({node.name: node.config.meta.get('source') ~ '.' ~ node.config.meta.table}) -%}
    {%- endfor -%}
    {{ return(shown) }}
{%- endmacro %}

{#- Refuses a definition below which a staging view shows another table than it did when the definition was published: its rows would
    become another table's. A person who means that says so by `replaces` in `meta` of the view. -#}
{% macro check_view_tables(model, published) -%}
    {%- set shown = tidemark.view_tables(model) -%}
    {%- for node in tidemark.read_by(model) if node.name in shown and published.get(node.name, shown[node.name]) != shown[node.name] -%}
        {%- set before = published[node.name] -%}
        {%- if node.config.meta.get('replaces') != before -%}
            {%- do tidemark._refuse(
                model, node.name ~ ' shows ' ~ shown[node.name] ~ ', but ' ~ before ~ ' when ' ~ model.name ~ ' was published',
                "Read a view of the table that is meant, or accept the other table: set meta.replaces of the view to '" ~ before ~ "'"
            ) -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}
