{{ config(materialized='view', meta={'source': 'nyc', 'table': 'public.planes'}) }}

-- depends_on: {{ source('nyc', 'planes') }}
select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns['tailnum'] as tailnum,
    cast(columns['year'] as int) as year,
    columns['type'] as type,
    columns['manufacturer'] as manufacturer,
    columns['model'] as model,
    cast(columns['engines'] as int) as engines,
    cast(columns['seats'] as int) as seats,
    cast(columns['speed'] as int) as speed,
    columns['engine'] as engine
from {{ ref('tidemark', 'row_state') }}
where source = 'nyc' and table_name = 'public.planes' and not deleted
