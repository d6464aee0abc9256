-- No record of the log twice among the events of the newest checkpoint.
select
    source,
    writer,
    commit_lsn,
    commit_index
from {{ ref('events') }}
where checkpoint_id = {{ tidemark.newest(tidemark.standing('events')) }}
group by source, writer, commit_lsn, commit_index
having count(*) > 1
