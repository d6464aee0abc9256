{#- No object twice in a bucket, among the rows that the newest checkpoint wrote. -#}
{% test one_row_per_object(model) %}
{%- set newest = tidemark.newest(tidemark.standing('row_state')) %}
select row_key
from {{ model }}
where {{ tidemark.of_checkpoints('_checkpoint_id', newest - 1, newest) }}
group by bucket, object_type, object_id, row_key
having count(*) > 1
{% endtest %}
