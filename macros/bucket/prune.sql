{#- For `tidemark prune`: drops the tables and the watermarks of a definition whose model was deleted. The rows are kept
    if they now belong to another kind of model. It begins with a release, so that a concurrent run that has staged
    changes of the definition is refused. A definition that was never published has no readers, and needs no
    release. The watermarks are deleted last: after a kill the definition is still listed as deleted. -#}
{% macro prune(definition, schema='buckets') -%}
    {%- do tidemark.finish_interrupted_release() -%}
    {%- set watermarks = tidemark.watermarks() -%}
    {%- set rows = api.Relation.create(schema=schema, identifier=definition) -%}
    {%- if definition in watermarks -%}
        {%- set last_op = tidemark.known_last_op(rows) -%}
        {%- do adapter.release_dropped(definition, rows | string, last_op) -%}
    {%- endif -%}
    {%- if tidemark.is_bucket_table(rows) -%}{%- do tidemark.drop_table_or_view(rows) -%}{%- endif -%}
    {%- do tidemark.drop_table_or_view(tidemark.ops_relation(rows)) -%}
    {%- if definition in watermarks -%}
        {%- do run_query('delete from ' ~ tidemark.get_core_relation('model_watermarks') ~ ' where model = ' ~ tidemark.literal(definition)) -%}
    {%- endif -%}
{%- endmacro %}
