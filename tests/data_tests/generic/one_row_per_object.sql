{#- No object twice in a bucket among the rows that the newest checkpoints wrote: their older versions are deleted. -#}
{% test one_row_per_object(model) %}
{%- set positions = {} if tidemark.only_renders() else tidemark.run().positions('row_state') %}
{%- set newest = positions.values() | map(attribute='checkpoint_id') | unique | list %}
select row_key
from {{ model }}
where {{ tidemark.in_list('_checkpoint_id', newest) }}
group by bucket, object_type, object_id, row_key
having count(*) > 1
{% endtest %}
