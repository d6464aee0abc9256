-- No raw event twice among the events of the newest checkpoint of each source.
-- depends_on: {{ ref('tidemark', 'events') }}
{%- set tested = tidemark.tested_positions('events') %}
{%- if not tested %}
{{ tidemark.nothing_new() }}
{%- else %}
select
    source,
    writer,
    commit_lsn,
    commit_index
from {{ ref('tidemark', 'events') }}
where {{ tidemark.at_checkpoint(tested) }}
group by source, writer, commit_lsn, commit_index
having count(*) > 1
{%- endif %}
