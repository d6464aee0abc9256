-- No record of the log twice among the events of the newest checkpoint.
{%- set newest = tidemark.newest(tidemark.standing('events')) %}
select
    source,
    writer,
    commit_lsn,
    commit_index
from {{ ref('events') }}
where {{ tidemark.of_checkpoints('checkpoint_id', newest - 1, newest) }}
group by source, writer, commit_lsn, commit_index
having count(*) > 1
