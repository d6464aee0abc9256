-- No raw event twice among the events of the newest checkpoint of each source.
-- depends_on: {{ ref('events') }}
{%- set tested = tidemark.tested('events') %}
{%- if not tested %}
{{ nothing_new() }}
{%- else %}
select
    source,
    writer,
    commit_lsn,
    commit_index
from {{ ref('events') }}
where {{ tidemark.of_its_checkpoint(tested) }}
group by source, writer, commit_lsn, commit_index
having count(*) > 1
{%- endif %}
