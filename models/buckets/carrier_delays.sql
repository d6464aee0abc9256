{{ config(meta={'bucket_by': ['carrier'], 'object_type': 'delays', 'object_id': 'carrier', 'key': ['carrier']}) }}

with airlines as (
    select * from {{ ref('stg_nyc__airlines') }}
),

flights as (
    select * from {{ ref('stg_nyc__flights') }}
),

per_carrier as (
    select
        carrier,
        count(*) as scheduled,
        count(dep_time) as departed,
        count(arr_delay) as arrived,
        sum(arr_delay) as delay_minutes,
        avg(cast(arr_delay as decimal(10, 0))) as mean_delay
    from flights
    group by carrier
)

select
    airlines.carrier,
    airlines.name,
    coalesce(per_carrier.scheduled, 0) as scheduled,
    coalesce(per_carrier.departed, 0) as departed,
    coalesce(per_carrier.arrived, 0) as arrived,
    coalesce(per_carrier.delay_minutes, 0) as delay_minutes,
    per_carrier.mean_delay
from airlines
left join per_carrier on airlines.carrier = per_carrier.carrier
