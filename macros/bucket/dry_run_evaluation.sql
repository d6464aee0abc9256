{#- A query that evaluates all objects and returns one number: it shows whether the evaluation fails. -#}
{% macro dry_run_evaluation(sql, settings, columns, plan) -%}
    with objects as (
        {{ tidemark.evaluated_objects(sql, settings, columns, plan) }}
    )

    select max(_digest_high) as highest
    from (
        {{ tidemark.with_digest_and_uniqueness(settings, columns) }}
    )
{%- endmacro %}
