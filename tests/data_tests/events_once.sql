-- No record of the log twice among the events of each source's newest checkpoint.
select
    source,
    writer,
    commit_lsn,
    commit_index
from {{ ref('events') }}
where {{ tidemark.of_its_checkpoint(tidemark.tested('events')) }}
group by source, writer, commit_lsn, commit_index
having count(*) > 1
