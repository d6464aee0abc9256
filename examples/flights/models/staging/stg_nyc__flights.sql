{{ config(materialized='view', meta={'source': 'nyc', 'table': 'public.flights'}) }}

-- depends_on: {{ source('nyc', 'flights') }}
select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns as _columns,
    cast(columns['id'] as bigint) as id,
    cast(columns['year'] as int) as year,
    cast(columns['month'] as int) as month,
    cast(columns['day'] as int) as day,
    cast(columns['dep_time'] as int) as dep_time,
    cast(columns['sched_dep_time'] as int) as sched_dep_time,
    cast(columns['dep_delay'] as int) as dep_delay,
    cast(columns['arr_time'] as int) as arr_time,
    cast(columns['sched_arr_time'] as int) as sched_arr_time,
    cast(columns['arr_delay'] as int) as arr_delay,
    columns['carrier'] as carrier,
    cast(columns['flight'] as int) as flight,
    columns['tailnum'] as tailnum,
    columns['origin'] as origin,
    columns['dest'] as dest,
    cast(columns['air_time'] as int) as air_time,
    cast(columns['distance'] as int) as distance,
    cast(columns['hour'] as int) as hour,
    cast(columns['minute'] as int) as minute,
    {{ tidemark.pg_timestamp(tidemark.field('time_hour')) }} as time_hour
from {{ ref('tidemark', 'row_state') }}
where source = 'nyc' and table_name = 'public.flights' and not deleted
