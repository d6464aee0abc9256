{{ config(meta={'source': 'nyc', 'table': 'public.weather'}) }}

select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns as _columns,
    columns['origin'] as origin,
    cast(columns['year'] as int) as year,
    cast(columns['month'] as int) as month,
    cast(columns['day'] as int) as day,
    cast(columns['hour'] as int) as hour,
    cast(columns['temp'] as double) as temp,
    cast(columns['dewp'] as double) as dewp,
    cast(columns['humid'] as double) as humid,
    cast(columns['wind_dir'] as int) as wind_dir,
    cast(columns['wind_speed'] as double) as wind_speed,
    cast(columns['wind_gust'] as double) as wind_gust,
    cast(nullif(columns['precip'], 'NaN') as decimal(5, 2)) as precip,
    cast(nullif(columns['pressure'], 'NaN') as decimal(6, 1)) as pressure,
    cast(columns['visib'] as double) as visib,
    try_cast(columns['time_hour'] as timestamp) as time_hour
from {{ ref('row_state') }}
where source = 'nyc' and table_name = 'public.weather' and not deleted
