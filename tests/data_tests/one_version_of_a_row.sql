-- No row twice among the rows that the newest checkpoint of each source changed: a run deletes older versions by key.
-- The release waits for this test, other models do not: dbt lets a model wait only for tests of its ancestors, and
-- `model_states` is no ancestor of a model.
-- depends_on: {{ ref('tidemark', 'row_state') }}, {{ ref('tidemark', 'model_states') }}
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
