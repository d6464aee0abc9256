{#- One step of the maintenance: a method of `Maintenance` with its arguments. -#}
{% macro maintenance_step(step, arguments) -%}
    {%- do tidemark.run() -%}
    {%- for line in adapter.run_maintenance(step, arguments) -%}
        {%- do log(line, info=true) -%}
    {%- endfor -%}
{%- endmacro %}
