{#-
  What this run brings to a model of `core`: a list of {source, checkpoint_id, lower, upper}, one for each source that has
  moved since the model's mark. Positions are half-open, [lower, upper): a record at `upper` belongs to a later run.
-#}
{% macro ranges(model_name) -%}
    {%- set marks = tidemark.marks() -%}
    {%- set mine = marks.get(model_name, {}) -%}
    {%- set found = [] -%}
    {%- for source, at in tidemark.standing(model_name).items() -%}
        {%- set lower = mine.get(source, {}).get('position', 0) -%}
        {%- if at.position > lower -%}
            {%- do found.append({
                'source': source, 'checkpoint_id': at.checkpoint_id, 'lower': lower, 'upper': at.position,
                'since': mine.get(source, {}).get('checkpoint_id', 0),
            }) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(found) }}
{%- endmacro %}

{#- The ranges by source, as `of_its_checkpoint` has them. -#}
{% macro moved(model_name) -%}
    {%- set moved = {} -%}
    {%- for range in tidemark.ranges(model_name) -%}
        {%- do moved.update({range.source: range}) -%}
    {%- endfor -%}
    {{ return(moved) }}
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

{#- The same as a predicate with literals, by which Iceberg passes over the files of other sources and times. -#}
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
