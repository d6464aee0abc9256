-- No row twice among the rows that the newest checkpoint of each source changed: a run deletes older versions by key.
-- depends_on: {{ ref('tidemark', 'row_state') }}
{%- set tested = tidemark.tested_positions('row_state') %}
{%- if not tested %}
{{ tidemark.nothing_new() }}
{%- else %}
select row_key
from {{ ref('tidemark', 'row_state') }}
where {{ tidemark.at_checkpoint(tested) }}
group by source, table_id, row_key
having count(*) > 1
{%- endif %}
