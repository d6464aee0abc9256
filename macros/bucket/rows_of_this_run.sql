{#- The rows of a definition that this run appended, as a predicate: those of its checkpoint with an op id after
    `last_op`, and the markers of removed rows (see `insert_differences`). -#}
{% macro rows_of_this_run(last_op, positions) -%}
    {{ tidemark.in_list('_checkpoint_id', [tidemark.newest_checkpoint(positions)]) }}
    and ({{ tidemark.uncompiled_literal('_op_id') }} > {{ tidemark.uncompiled_literal(last_op ~ 'L') }} or _op_id < 0)
{%- endmacro %}
