{#- The newest checkpoint_id of some positions; 0 before the first. -#}
{% macro newest_checkpoint(positions) -%}
    {{ return(positions.values() | map(attribute='checkpoint_id') | max | default(0, true)) }}
{%- endmacro %}
