-- No row twice among those that the newest checkpoint changed; their older versions are deleted by the same keys.
{%- set newest = tidemark.newest(tidemark.standing('row_state')) %}
select row_key
from {{ ref('row_state') }}
where {{ tidemark.of_checkpoints('checkpoint_id', newest - 1, newest) }}
group by source, table_id, row_key
having count(*) > 1
