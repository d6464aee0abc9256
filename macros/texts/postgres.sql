{#- Dates, times and bytea from the text that Postgres prints; NULL for what Spark can't hold. Text that is none, as the column has
    another type by now, is raised for. -#}

{#- Spark reads no further than a blank: `0044-03-15 BC` would become a date of our era, and a timestamp its date. -#}
{% macro pg_date(text) -%}
    {{ tidemark._read_strictly("replace(" ~ text ~ ", ' ', '_')", 'date', '(BC|infinity)$') }}
{%- endmacro %}

{#- A timestamptz. -#}
{% macro pg_timestamp(text) -%}
    {{ tidemark._read_timestamp(text, 'timestamp') }}
{%- endmacro %}

{#- A timestamp without time zone. -#}
{% macro pg_timestamp_ntz(text) -%}
    {{ tidemark._read_timestamp(text, 'timestamp_ntz') }}
{%- endmacro %}

{#- What does not begin with `\x` keeps its `?`, which is no digit. -#}
{% macro pg_bytea(text) -%}
    to_binary(replace('?' || {{ text }}, '?\\x', ''), 'hex')
{%- endmacro %}

{% macro _read_timestamp(text, type) -%}
    {{ tidemark._read_strictly(text, type, '(BC|infinity)$|^29[0-9]{4}-') }}
{%- endmacro %}

{#- `text` as a type; NULL where it is like `not_held`, a regular expression that only what can't be read is compared with. -#}
{% macro _read_strictly(text, type, not_held) -%}
    coalesce(try_cast({{ text }} as {{ type }}), if({{ text }} rlike '{{ not_held }}', null, cast({{ text }} as {{ type }})))
{%- endmacro %}
