-- No row twice among those that the newest checkpoint changed; their older versions are deleted by the same keys.
select row_key
from {{ ref('row_state') }}
where checkpoint_id = {{ tidemark.newest(tidemark.standing('row_state')) }}
group by source, table_id, row_key
having count(*) > 1
