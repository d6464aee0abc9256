{#- Retires the tables of definitions whose models are now of another kind, on-run-start. -#}
{% macro retire_replaced_buckets() -%}
    {%- if execute -%}
        {%- do tidemark.run() -%}
        {%- do adapter.retire_replaced_buckets() -%}
    {%- endif -%}
{%- endmacro %}
