{#- The comment in whose place `with_change_filter` writes the filter of changed rows. -#}
{% macro changed_rows_placeholder() -%}
    {{ return('/* changed rows */') }}
{%- endmacro %}
