{#-
  The places at which the log of a run is divided into slices, by source; none for a run with few records. Without
  slices, one task would sort all records of a source.
-#}
{% macro log_slices(wal_events, ranges) -%}
    {%- set slices = {} -%}
    {%- if execute and ranges -%}
        {%- set sample = run_query(
            'select source, commit_lsn, change_lsn from ' ~ wal_events ~ ' as records where ' ~ tidemark.in_ranges(ranges, 'records')
            ~ ' and pmod(xxhash64(commit_lsn, change_lsn, commit_index), ' ~ adapter.log_sample() ~ ') = 0'
        ) -%}
        {%- do slices.update(adapter.log_slices(sample)) -%}
    {%- endif -%}
    {{ return(slices) }}
{%- endmacro %}
