{#- Spark values from the text of a document's field, as `field` returns it; NULL if the value has another type. Each
    value is one wrapper in canonical Extended JSON, such as {"$numberInt":"5"}. -#}

{#- A string without its quotes; any other text unchanged. -#}
{% macro bson_text(text) -%}
    if({{ text }} like '"%', from_json('[' || {{ text }} || ']', 'array<string>')[0], {{ text }})
{%- endmacro %}

{#- 32-bit and 64-bit integers. -#}
{% macro bson_long(text) -%}
    try_cast({{ tidemark._unwrapped(text, 'number(?:Int|Long)') }} as bigint)
{%- endmacro %}

{#- Doubles and integers. -#}
{% macro bson_double(text) -%}
    try_cast({{ tidemark._unwrapped(text, 'number(?:Double|Int|Long)') }} as double)
{%- endmacro %}

{#- Decimal128, as text: Spark's decimals do not cover its range. -#}
{% macro bson_decimal(text) -%}
    {{ tidemark._unwrapped(text, 'numberDecimal') }}
{%- endmacro %}

{#- Booleans, which JSON has too. -#}
{% macro bson_boolean(text) -%}
    case {{ text }} when 'true' then true when 'false' then false end
{%- endmacro %}

{#- ObjectIds, as 24 hexadecimal digits. -#}
{% macro bson_object_id(text) -%}
    {{ tidemark._unwrapped(text, 'oid') }}
{%- endmacro %}

{#- Dates, with milliseconds. As for Postgres, NULL before year 1, which readers interpret differently, and from year
    294247 on, which Spark cannot represent. -#}
{% macro bson_date(text) -%}
    {%- set milliseconds -%}
    try_cast(regexp_extract({{ text }}, '^\\{"\\$date":\\{"\\$numberLong":"(-?[0-9]+)"', 1) as bigint)
    {%- endset -%}
    if({{ milliseconds }} between -62135596800000 and 9223371244799999, timestamp_millis({{ milliseconds }}), null)
{%- endmacro %}

{#- BSON timestamps, to the second. -#}
{% macro bson_timestamp(text) -%}
    timestamp_seconds(try_cast(regexp_extract({{ text }}, '^\\{"\\$timestamp":\\{"t":([0-9]+)', 1) as bigint))
{%- endmacro %}

{#- Binary data of any subtype. -#}
{% macro bson_binary(text) -%}
    if(
        {{ text }} like '{"$binary":{"base64":"%',
        try_to_binary(regexp_extract({{ text }}, '^\\{"\\$binary":\\{"base64":"([^"]*)"', 1), 'base64'),
        null
    )
{%- endmacro %}

{#- UUIDs (16 bytes of binary data, subtype 4), in the usual notation. -#}
{% macro bson_uuid(text) -%}
    {%- set digits = "lower(hex(" ~ tidemark.bson_binary(text) ~ "))" -%}
    if(
        {{ text }} like '{"$binary":{"base64":"________________________","subType":"04"}}',
        regexp_replace({{ digits }}, '^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5'),
        null
    )
{%- endmacro %}

{#- The text in a wrapper of this kind, a regular expression; NULL for anything else. -#}
{% macro _unwrapped(text, kind) -%}
    nullif(regexp_extract({{ text }}, '^\\{"\\${{ kind }}":"([^"]*)"\\}$', 1), '')
{%- endmacro %}
