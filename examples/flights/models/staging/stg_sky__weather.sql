{{ config(materialized='view', meta={'source': 'sky', 'table': 'sky.weather'}) }}

-- depends_on: {{ source('sky', 'weather') }}
select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns as _columns,
    {{ tidemark.bson_text(tidemark.field('_id')) }} as _id,
    {{ tidemark.bson_text(tidemark.field('origin')) }} as origin,
    {{ tidemark.bson_date(tidemark.field('time_hour')) }} as time_hour,
    {{ tidemark.bson_double(tidemark.field('temp')) }} as temp,
    {{ tidemark.bson_double(tidemark.field('dewp')) }} as dewp,
    {{ tidemark.bson_double(tidemark.field('humid')) }} as humid,
    {{ tidemark.bson_decimal(tidemark.field('precip')) }} as precip,
    {{ tidemark.bson_double(tidemark.field('pressure')) }} as pressure,
    {{ tidemark.bson_double(tidemark.field('visib')) }} as visib,
    {{ tidemark.bson_double(tidemark.field('wind', 'speed')) }} as wind_speed,
    {{ tidemark.bson_long(tidemark.field('wind', 'dir')) }} as wind_dir,
    {{ tidemark.bson_double(tidemark.field('wind', 'gust')) }} as wind_gust
from {{ ref('tidemark', 'row_state') }}
where source = 'sky' and table_name = 'sky.weather' and not deleted
