{{ config(
    materialized='bucket',
    meta={'bucket_by': ['tailnum'], 'object_type': 'leg', 'object_id': 'id', 'evaluation': 'incremental'},
) }}

select
    _row_key,
    id,
    tailnum,
    time_hour,
    carrier,
    flight,
    origin,
    dest,
    air_time,
    distance
from {{ tidemark.rows('stg_nyc__flights') }}
where tailnum is not null
