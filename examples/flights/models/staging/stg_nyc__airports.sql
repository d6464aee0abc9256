{{ config(materialized='view', meta={'source': 'nyc', 'table': 'public.airports'}) }}

-- depends_on: {{ source('nyc', 'airports') }}
select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns['faa'] as faa,
    columns['name'] as name,
    {{ tidemark.pg_double(tidemark.field('lat')) }} as lat,
    {{ tidemark.pg_double(tidemark.field('lon')) }} as lon,
    cast(columns['alt'] as int) as alt,
    cast(columns['tz'] as int) as tz,
    columns['dst'] as dst,
    columns['tzone'] as tzone
from {{ ref('tidemark', 'row_state') }}
where source = 'nyc' and table_name = 'public.airports' and not deleted
