{#- No object twice in a bucket, among the rows that the newest checkpoint wrote. -#}
{% test one_row_per_object(model) %}
select row_key
from {{ model }}
where _checkpoint_id = {{ tidemark.newest(tidemark.standing('row_state')) }}
group by bucket, object_type, object_id, row_key
having count(*) > 1
{% endtest %}
