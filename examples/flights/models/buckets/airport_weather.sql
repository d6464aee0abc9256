{{ config(
    materialized='bucket',
    meta={'bucket_by': ['origin'], 'object_type': 'weather', 'object_id': 'origin', 'unique_key': ['origin']},
) }}

with weather as (
    select * from {{ ref('stg_sky__weather') }}
),

airports as (
    select * from {{ ref('stg_nyc__airports') }}
),

newest_first as (
    select
        *,
        row_number() over (partition by origin order by time_hour desc) as place,
        count(*) over (partition by origin) as hours,
        sum(cast(precip as decimal(5, 2))) over (partition by origin) as precip_of_the_year
    from weather
)

select
    newest.origin,
    airports.name,
    newest.time_hour,
    newest.temp,
    newest.wind_speed,
    newest.visib,
    newest.hours,
    newest.precip_of_the_year
from newest_first as newest
left join airports on newest.origin = airports.faa
where newest.place = 1
