{{ config(
    materialized='bucket',
    meta={'bucket_by': ['origin'], 'object_type': 'departure', 'object_id': 'id', 'evaluation': 'incremental'},
) }}

select
    _row_key,
    id,
    origin,
    dest,
    carrier,
    flight,
    tailnum,
    time_hour,
    sched_dep_time,
    dep_time,
    dep_delay
from {{ tidemark.rows('stg_nyc__flights') }}
where dep_time is not null
