-- No row in two versions, among the rows that the newest checkpoint changed.
with changed as (
    select
        source,
        table_id,
        row_key
    from {{ ref('row_state') }}
    where checkpoint_id = {{ tidemark.newest(tidemark.standing('row_state')) }}
)

select row_key
from {{ ref('row_state') }}
left semi join changed using (source, table_id, row_key)
group by source, table_id, row_key
having count(*) > 1
