{#- Rejects `--empty` and `--sample` before anything is written: the rows that they leave out would be taken for deleted
    rows. -#}
{% macro reject_empty_and_sample() -%}
    {%- if execute and (invocation_args_dict.get('empty') or invocation_args_dict.get('sample')) -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was done: with --empty or --sample the rows left out would be taken for deleted rows (dbt_project.yml). Run without these options.'
        ) }}
    {%- endif -%}
{%- endmacro %}
