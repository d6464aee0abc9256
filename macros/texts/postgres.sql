{#- Floats, dates, times and bytea from the text that Postgres prints in our sessions; NULL for infinity, BC and what Spark can't hold. Any
    other text is raised for, also such as Spark would read (`22:01:00` as a time of today): the column has another type by now. -#}

{#- A real, of 32 bits. -#}
{% macro pg_real(text) -%}
    {{ tidemark._read_float(text, 'float') }}
{%- endmacro %}

{#- A double precision. -#}
{% macro pg_double(text) -%}
    {{ tidemark._read_float(text, 'double') }}
{%- endmacro %}

{#- A date. -#}
{% macro pg_date(text) -%}
    {%- set day = '\\d{4,7}-\\d\\d-\\d\\d' -%}
    {{ tidemark._read_printed(text, 'date', day, day ~ ' BC') }}
{%- endmacro %}

{#- A timestamptz: sessions are at UTC. -#}
{% macro pg_timestamp(text) -%}
    {{ tidemark._read_timestamp(text, 'timestamp', '\\+00') }}
{%- endmacro %}

{#- A timestamp without time zone. -#}
{% macro pg_timestamp_ntz(text) -%}
    {{ tidemark._read_timestamp(text, 'timestamp_ntz', '') }}
{%- endmacro %}

{#- Bytes, from `\x` and two digits for each. -#}
{% macro pg_bytea(text) -%}
    case
        when {{ text }} like r'\\x%' and length({{ text }}) % 2 = 0 then to_binary(substr({{ text }}, 3), 'hex')
        when {{ text }} is not null then {{ tidemark._raise_for(text, 'binary') }}
    end
{%- endmacro %}

{#- Spark would read what is too large as infinite. -#}
{% macro _read_float(text, type) -%}
    case
        when {{ text }} in ('Infinity', '-Infinity', 'NaN') then cast({{ text }} as {{ type }})
        when {{ text }} rlike r'^-?\d+(\.\d+)?(e[+-]\d+)?\z' and abs(cast({{ text }} as {{ type }})) < cast('Infinity' as {{ type }})
            then cast({{ text }} as {{ type }})
        when {{ text }} is not null then {{ tidemark._raise_for(text, type) }}
    end
{%- endmacro %}

{#- Spark's times end early in the year 294247, Postgres' with 294276. -#}
{% macro _read_timestamp(text, type, zone) -%}
    {%- set moment = '-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d(\\.\\d{1,6})?' ~ zone -%}
    {{ tidemark._read_printed(text, type, '(?!294(24[7-9]|2[5-7]\\d))\\d{4,6}' ~ moment, '\\d{4,6}' ~ moment ~ '( BC)?') }}
{%- endmacro %}

{#- `text` as a type where all of it is like `held`, a regular expression; NULL where it is like `not_held` or infinite. -#}
{% macro _read_printed(text, type, held, not_held) -%}
    case
        when {{ text }} rlike r'^({{ held }})\z' then cast({{ text }} as {{ type }})
        when {{ text }} rlike r'^({{ not_held }}|-?infinity)\z' then null
        when {{ text }} is not null then {{ tidemark._raise_for(text, type) }}
    end
{%- endmacro %}

{% macro _raise_for(text, type) -%}
    raise_error({{ tidemark.literal(text ~ ' as ' ~ type ~ ': Postgres prints no such value as ') }} || {{ text }} || {{ tidemark.literal('; edit the view, or run `tidemark codegen --force TABLE`') }})
{%- endmacro %}
