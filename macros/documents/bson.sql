{#- Values of documents as Spark's types, from the text that `field` gives; NULL for a value of another type. -#}

{#- 32-bit and 64-bit integers. -#}
{% macro bson_long(text) -%}
    try_cast(coalesce(get_json_object({{ text }}, '$.$numberInt'), get_json_object({{ text }}, '$.$numberLong')) as bigint)
{%- endmacro %}

{#- Doubles, and integers among them. -#}
{% macro bson_double(text) -%}
    try_cast(
        coalesce(
            get_json_object({{ text }}, '$.$numberDouble'),
            get_json_object({{ text }}, '$.$numberInt'),
            get_json_object({{ text }}, '$.$numberLong')
        ) as double
    )
{%- endmacro %}

{#- Decimal128, as its text: Spark's decimals can't hold them all. -#}
{% macro bson_decimal(text) -%}
    get_json_object({{ text }}, '$.$numberDecimal')
{%- endmacro %}

{% macro bson_boolean(text) -%}
    try_cast({{ text }} as boolean)
{%- endmacro %}

{#- ObjectIds, as 24 hexadecimal digits. -#}
{% macro bson_object_id(text) -%}
    get_json_object({{ text }}, '$.$oid')
{%- endmacro %}

{#- Dates, which have milliseconds; NULL outside of the years 1 to 9999, which Spark can't hold. -#}
{% macro bson_date(text) -%}
    {%- set milliseconds -%}
    try_cast(get_json_object({{ text }}, '$.$date.$numberLong') as bigint)
    {%- endset -%}
    if({{ milliseconds }} between -62135596800000 and 253402300799999, timestamp_millis({{ milliseconds }}), null)
{%- endmacro %}

{#- BSON timestamps, to the second. -#}
{% macro bson_timestamp(text) -%}
    timestamp_seconds(try_cast(get_json_object({{ text }}, '$.$timestamp.t') as bigint))
{%- endmacro %}

{% macro bson_binary(text) -%}
    unbase64(get_json_object({{ text }}, '$.$binary.base64'))
{%- endmacro %}

{#- UUIDs (binary of subtype 4), as people write them. -#}
{% macro bson_uuid(text) -%}
    regexp_replace(
        lower(hex({{ tidemark.bson_binary(text) }})), '^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5'
    )
{%- endmacro %}
