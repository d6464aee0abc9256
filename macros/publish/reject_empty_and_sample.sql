{#- Rejects `--empty` and `--sample` for Tidemark's models, before anything is written: the rows that they leave out would
    be taken for deleted rows. -#}
{% macro reject_empty_and_sample() -%}
    {%- set limits = execute and (invocation_args_dict.get('empty') or invocation_args_dict.get('sample')) -%}
    {%- for unique_id in (selected_resources if limits else []) if tidemark.run().graph.publishes(unique_id) -%}
        {{ exceptions.raise_compiler_error(
            'Nothing was done: with --empty or --sample the rows left out would be taken for deleted rows (' ~ unique_id ~ '). Run without these options.'
        ) }}
    {%- endfor -%}
{%- endmacro %}
