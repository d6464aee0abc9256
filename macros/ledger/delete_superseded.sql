{#- Deletes the versions of a row that are older than the one just appended under the checkpoint. -#}
{% macro delete_superseded(relation, key, checkpoint_id) -%}
    merge into {{ relation }} as old
    using (
        select {{ key | join(', ') }} from {{ relation }} where {{ tidemark.of_checkpoints('checkpoint_id', checkpoint_id - 1, checkpoint_id) }}
    ) as new
    on
        {% for column in key -%}
        old.{{ column }} = new.{{ column }} and
        {% endfor -%}
        not {{ tidemark.of_checkpoints('old.checkpoint_id', checkpoint_id - 1, checkpoint_id) }}
    when matched then delete
{%- endmacro %}
