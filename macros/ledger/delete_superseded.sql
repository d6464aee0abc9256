{#- Deletes the versions of a row that are older than the one just appended under the checkpoint. -#}
{% macro delete_superseded(relation, key, checkpoint_id) -%}
    merge into {{ relation }} as old
    using (
        select {{ key | join(', ') }} from {{ relation }} where checkpoint_id = {{ checkpoint_id }}
    ) as new
    on
        {% for column in key -%}
        old.{{ column }} = new.{{ column }} and
        {% endfor -%}
        old.checkpoint_id < {{ checkpoint_id }}
    when matched then delete
{%- endmacro %}
