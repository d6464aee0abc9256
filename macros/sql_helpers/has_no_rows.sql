{#- Whether a select returns no rows. True while parsing. -#}
{% macro has_no_rows(select_sql) -%}
    {{ return(not execute or run_query('select 1 from (' ~ select_sql ~ ') limit 1') | length == 0) }}
{%- endmacro %}
