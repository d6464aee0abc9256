{#- Publishes the effect of statements on a table of a model (see `Releases.maintain`), and logs a line. -#}
{% macro publish_maintenance(model, table, statements, summary) -%}
    {%- do tidemark.run() -%}
    {%- set outcome = adapter.publish_maintenance(model, table, statements) -%}
    {%- if outcome == 'published' -%}
        {%- do log(table ~ ': ' ~ summary, info=true) -%}
    {%- elif outcome == 'overtaken' -%}
        {%- do log(table ~ ': a run wrote to it in the meantime; left to the next maintenance', info=true) -%}
    {%- endif -%}
{%- endmacro %}
