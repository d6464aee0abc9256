{#- Deletes the versions of rows that are older than those just appended, under the checkpoints of their sources, `at`. -#}
{% macro delete_superseded(relation, key, at) -%}
    merge into {{ relation }} as old
    using (
        select {{ key | join(', ') }} from {{ relation }} where {{ tidemark.of_its_checkpoint(at) }}
    ) as new
    on
        {% for column in key -%}
        old.{{ column }} = new.{{ column }} and
        {% endfor -%}
        not {{ tidemark.of_its_checkpoint(at, 'old') }}
    when matched then delete
{%- endmacro %}
