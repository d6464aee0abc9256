{#-
  The ranges that this run processes in a model of `core`: a list of {source, checkpoint_id, lower, upper, since}, one
  for each source that has advanced past the model's watermark. Positions are half-open, [lower, upper): a record at
  `upper` belongs to a later run.
-#}
{% macro ranges(model_name) -%}
    {%- set watermarks = tidemark.watermarks() -%}
    {%- set own_watermarks = watermarks.get(model_name, {}) -%}
    {%- set ranges = [] -%}
    {%- for source, point in tidemark.model_positions(model_name).items() -%}
        {%- set lower = own_watermarks.get(source, {}).get('position', 0) -%}
        {%- if point.position > lower -%}
            {%- do ranges.append({
                'source': source, 'checkpoint_id': point.checkpoint_id, 'lower': lower, 'upper': point.position,
                'since': own_watermarks.get(source, {}).get('checkpoint_id', 0),
            }) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(ranges) }}
{%- endmacro %}

{#- The ranges by source, in the form that `at_checkpoint` takes. -#}
{% macro advanced(model_name) -%}
    {%- set advanced = {} -%}
    {%- for range in tidemark.ranges(model_name) -%}
        {%- do advanced.update({range.source: range}) -%}
    {%- endfor -%}
    {{ return(advanced) }}
{%- endmacro %}

{#- Ranges as a select of (source, checkpoint_id, lower_lsn, upper_lsn, since), for joins. -#}
{% macro ranges_select(ranges) -%}
    select * from
        {%- if ranges %}
        values
            {%- for range in ranges %}
            ('{{ range.source }}', {{ range.checkpoint_id }}L, {{ range.lower }}L, {{ range.upper }}L, {{ range.since }}L)
            {{- ',' if not loop.last }}
            {%- endfor %}
        {%- else %}
        (select '', 0L, 0L, 0L, 0L where false)
        {%- endif %}
        as ranges (source, checkpoint_id, lower_lsn, upper_lsn, since)
{%- endmacro %}

{#- Ranges as a predicate with literals, by which Iceberg skips the files of other sources and times. -#}
{% macro in_ranges(ranges, relation) -%}
    (
        false
        {%- for range in ranges %}
        or (
            {{ relation }}.source = '{{ range.source }}'
            and {{ relation }}.commit_lsn >= {{ range.lower }}
            and {{ relation }}.commit_lsn < {{ range.upper }}
        )
        {%- endfor %}
    )
{%- endmacro %}
