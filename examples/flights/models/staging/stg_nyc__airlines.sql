{{ config(materialized='view', meta={'source': 'nyc', 'table': 'public.airlines'}) }}

-- depends_on: {{ source('nyc', 'airlines') }}
select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns['carrier'] as carrier,
    columns['name'] as name
from {{ ref('tidemark', 'row_state') }}
where source = 'nyc' and table_name = 'public.airlines' and not deleted
