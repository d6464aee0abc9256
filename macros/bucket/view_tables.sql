{#- The table that each staging view below a definition shows, as {view: `<source>.<table>`}. -#}
{% macro view_tables(model) -%}
    {%- set shown = {} -%}
    {%- for node in tidemark.upstream_nodes(model) if node.config.meta.get('table') -%}
        {%- do shown.update({node.name: node.config.meta.get('source') ~ '.' ~ node.config.meta.table}) -%}
    {%- endfor -%}
    {{ return(shown) }}
{%- endmacro %}

{#- Rejects a definition if a staging view below it shows another table than when the definition was published: its rows
    would be replaced by those of the other table. To allow this, set `replaces` in the `meta` of the view. -#}
{% macro check_view_tables(model, published) -%}
    {%- set shown = tidemark.view_tables(model) -%}
    {%- for node in tidemark.upstream_nodes(model) if node.name in shown and published.get(node.name, shown[node.name]) != shown[node.name] -%}
        {%- set published_table = published[node.name] -%}
        {%- if node.config.meta.get('replaces') != published_table -%}
            {%- do tidemark.raise_definition_error(
                model, node.name ~ ' shows ' ~ shown[node.name] ~ ', but ' ~ published_table ~ ' when ' ~ model.name ~ ' was published',
                "Read a view of the intended table, or accept the other table: set meta.replaces of the view to '" ~ published_table ~ "'"
            ) -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro %}
