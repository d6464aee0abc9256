-- No row twice among those that each source's newest checkpoint changed: older versions are deleted by the same keys.
-- depends_on: {{ ref('row_state') }}
{%- set tested = tidemark.tested_positions('row_state') %}
{%- if not tested %}
{{ empty_select() }}
{%- else %}
select row_key
from {{ ref('row_state') }}
where {{ tidemark.at_checkpoint(tested) }}
group by source, table_id, row_key
having count(*) > 1
{%- endif %}
