{#- The slice of a record, from 0: the number of places in `slices` (see `log_slices`) at or before its own. -#}
{% macro slice_of(slices, records) -%}
    {%- if not slices -%}
    0
    {%- else -%}
    case {{ records }}.source
        {%- for source, starts in slices.items() %}
        when '{{ source }}' then 0
            {%- for commit_lsn, change_lsn in starts %}
            + int(
                {{ records }}.commit_lsn > {{ commit_lsn }}
                or ({{ records }}.commit_lsn = {{ commit_lsn }} and {{ records }}.change_lsn >= {{ change_lsn }})
            )
            {%- endfor %}
        {%- endfor %}
        else 0
    end
    {%- endif -%}
{%- endmacro %}
