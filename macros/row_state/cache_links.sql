{#- The linked segments as a temporary view in memory: a recursive query asks for them in every step. One that a killed run left is
    replaced. -#}
{% macro cache_links(kept) -%}
    {%- do run_query('drop view if exists tidemark_links') -%}
    {%- do tidemark.run_memory().update({'links': true}) -%}
    {%- do run_query('cache table tidemark_links as with ' ~ kept ~ ', ' ~ tidemark.linked_segments() ~ ' select * from linked') -%}
    {{ return('tidemark_links') }}
{%- endmacro %}

{#- Frees what `cache_links` holds. -#}
{% macro drop_links() -%}
    {%- if tidemark.run_memory().pop('links', false) -%}
        {%- do run_query('drop view if exists tidemark_links') -%}
    {%- endif -%}
{%- endmacro %}
