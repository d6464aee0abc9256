-- depends_on: {{ ref('model_watermarks') }}
-- depends_on: {{ ref('releases') }}
-- depends_on: {{ ref('model_states') }}
-- A source's checkpoint is its persisted position: the lowest position of its writers, each in its newest incarnation.
{%- set columns = {'checkpoint_id': 'bigint', 'source': 'string', 'lsn': 'bigint', 'created_at': 'timestamp'} %}
{%- set marks = tidemark.marks().get('checkpoints', {}) %}
{%- set raw = {
    'positions': source('raw', 'stream_positions'),
    'sources': source('raw', 'sources'),
    'tables': source('raw', 'source_tables'),
} %}
{%- set moved = tidemark.moved_sources(raw, marks) %}
{%- if not moved %}
{{ nothing_new(columns) }}
{%- else %}
{%- do tidemark.remember_checkpoints(moved, tidemark.newest(marks) + 1) %}
select
    {{ tidemark.newest(marks) + 1 }}L as checkpoint_id,
    source,
    lsn,
    current_timestamp() as created_at
from
    values
    {% for source, position in moved.items() -%}
    ('{{ source }}', {{ position }}L){{ ',' if not loop.last }}
    {% endfor -%}
    as moved (source, lsn)
{%- endif %}
