{#- Whether models are rendered without being run: by `dbt compile` and `dbt docs generate`, where a model would query the
    log for its SQL, or when a project is parsed that also has targets of another type. -#}
{% macro only_renders() -%}
    {{ return(flags.WHICH in ['compile', 'generate'] or not (execute or target.type == 'tidemark')) }}
{%- endmacro %}
