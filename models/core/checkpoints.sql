-- depends_on: {{ ref('tidemark', 'model_watermarks') }}
-- depends_on: {{ ref('tidemark', 'releases') }}
-- depends_on: {{ ref('tidemark', 'model_states') }}
-- The position of a source at a checkpoint is its persisted position: the lowest position of its writers, each in its
-- newest epoch. All sources that have advanced get the same checkpoint_id.
{%- set columns = {'checkpoint_id': 'bigint', 'source': 'string', 'position': 'bigint', 'created_at': 'timestamp'} %}
{%- set watermarks = tidemark.watermarks().get('checkpoints', {}) %}
{%- set raw = {
    'positions': source('raw', 'stream_positions'),
    'sources': source('raw', 'sources'),
    'tables': source('raw', 'source_tables'),
} %}
{%- set advanced = tidemark.advanced_sources(raw, watermarks) %}
{%- if not advanced %}
{{ tidemark.nothing_new(columns) }}
{%- else %}
{%- do tidemark.run().stage_checkpoints(advanced, tidemark.newest_checkpoint(watermarks) + 1) %}
select
    {{ tidemark.newest_checkpoint(watermarks) + 1 }}L as checkpoint_id,
    source,
    position,
    current_timestamp() as created_at
from
    values
    {%- for source, position in advanced.items() %}
    ('{{ source }}', {{ position }}L){{ ',' if not loop.last }}
    {%- endfor %}
        as advanced (source, position)
{%- endif %}
