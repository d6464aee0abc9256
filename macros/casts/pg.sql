{#- Floats, dates, times and bytea from the text that Postgres prints in Tidemark's sessions. NULL for infinity, BC and
    values that Spark cannot represent. Any other text raises an error, also text that Spark would read (`22:01:00` as a
    time of today): the column's type has changed. -#}

{#- A real, of 32 bits. -#}
{% macro pg_real(text) -%}
    {{ tidemark._parse_float(text, 'float') }}
{%- endmacro %}

{#- A double precision. -#}
{% macro pg_double(text) -%}
    {{ tidemark._parse_float(text, 'double') }}
{%- endmacro %}

{#- A date. -#}
{% macro pg_date(text) -%}
    {%- set day = '\\d{4,7}-\\d\\d-\\d\\d' -%}
    {{ tidemark._parse_printed(text, 'date', day, day ~ ' BC') }}
{%- endmacro %}

{#- A timestamptz: sessions use UTC. -#}
{% macro pg_timestamp(text) -%}
    {{ tidemark._parse_timestamp(text, 'timestamp', '\\+00') }}
{%- endmacro %}

{#- A timestamp without time zone. -#}
{% macro pg_timestamp_ntz(text) -%}
    {{ tidemark._parse_timestamp(text, 'timestamp_ntz', '') }}
{%- endmacro %}

{#- Bytes, from `\x` and two digits for each. -#}
{% macro pg_bytea(text) -%}
    case
        when {{ text }} like r'\\x%' and length({{ text }}) % 2 = 0 then to_binary(substr({{ text }}, 3), 'hex')
        when {{ text }} is not null then {{ tidemark._raise_unparsable(text, 'binary') }}
    end
{%- endmacro %}

{#- Spark would read a number that is too large as infinite. -#}
{% macro _parse_float(text, type) -%}
    case
        when {{ text }} in ('Infinity', '-Infinity', 'NaN') then cast({{ text }} as {{ type }})
        when {{ text }} rlike r'^-?\d+(\.\d+)?(e[+-]\d+)?\z' and abs(cast({{ text }} as {{ type }})) < cast('Infinity' as {{ type }})
            then cast({{ text }} as {{ type }})
        when {{ text }} is not null then {{ tidemark._raise_unparsable(text, type) }}
    end
{%- endmacro %}

{#- The last timestamps of Spark are early in the year 294247, those of Postgres in 294276. -#}
{% macro _parse_timestamp(text, type, zone) -%}
    {%- set time = '-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d(\\.\\d{1,6})?' ~ zone -%}
    {{ tidemark._parse_printed(text, type, '(?!294(24[7-9]|2[5-7]\\d))\\d{4,6}' ~ time, '\\d{4,6}' ~ time ~ '( BC)?') }}
{%- endmacro %}

{#- `text` as a type if it matches `valid`, a regular expression; NULL if it matches `unsupported` or is infinite. -#}
{% macro _parse_printed(text, type, valid, unsupported) -%}
    case
        when {{ text }} rlike r'^({{ valid }})\z' then cast({{ text }} as {{ type }})
        when {{ text }} rlike r'^({{ unsupported }}|-?infinity)\z' then null
        when {{ text }} is not null then {{ tidemark._raise_unparsable(text, type) }}
    end
{%- endmacro %}

{% macro _raise_unparsable(text, type) -%}
    raise_error({{ tidemark.literal(text ~ ' as ' ~ type ~ ': Postgres prints no such value as ') }} || {{ text }} || {{ tidemark.literal('; edit the view, or run `tidemark codegen --force TABLE`') }})
{%- endmacro %}
