-- depends_on: {{ ref('tidemark', 'checkpoints') }}
{%- set ranges = tidemark.ranges('table_status') %}
{%- set decisions = tidemark.decide_tables(source('raw', 'source_tables'), source('raw', 'wal_events'), this, ranges) %}
{%- if is_incremental() and (not ranges or tidemark.has_no_rows(decisions)) %}
{{ tidemark.nothing_new() }}
{%- else %}
{{ decisions }}
{%- endif %}
