{{ config(
    materialized='bucket',
    meta={'bucket_by': ['carrier'], 'object_type': 'flight', 'object_id': 'id', 'evaluation': 'incremental'},
) }}

select
    _row_key,
    id,
    carrier,
    flight,
    origin,
    dest,
    time_hour,
    arr_delay,
    case
        when arr_delay is null then 'did not arrive'
        when arr_delay > 15 then 'late'
        else 'on time'
    end as punctuality
from {{ tidemark.rows('stg_nyc__flights') }}
