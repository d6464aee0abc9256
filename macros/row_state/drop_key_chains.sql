{#- Drops the views of `cache_key_chains`, the last step first: Spark finds a view's cache by its complete plan. -#}
{% macro drop_key_chains() -%}
    {%- for view in tidemark.run().take_scratch_views() -%}
        {%- do run_query('drop view ' ~ view) -%}
    {%- endfor -%}
{%- endmacro %}
