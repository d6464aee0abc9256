{{ config(meta={'source': 'nyc', 'table': 'public.airports'}) }}

select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns['faa'] as faa,
    columns['name'] as name,
    cast(columns['lat'] as double) as lat,
    cast(columns['lon'] as double) as lon,
    cast(columns['alt'] as int) as alt,
    cast(columns['tz'] as int) as tz,
    columns['dst'] as dst,
    columns['tzone'] as tzone
from {{ ref('row_state') }}
where source = 'nyc' and table_name = 'public.airports' and not deleted
