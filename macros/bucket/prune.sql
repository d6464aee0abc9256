{#- For `tidemark prune`: drops the tables and the marks of a definition whose model was deleted; the rows are kept if they are
    of another kind of model by now. First of all by a release, so that a run under way that has staged changes of it is refused; of the
    checkpoints' mark, as any would do. One that was never published has no readers, and takes none. Marks go last: killed between, it is
    still listed as gone. -#}
{% macro prune(definition) -%}
    {%- do tidemark.recover() -%}
    {%- set marks = tidemark.marks() -%}
    {%- set rows = api.Relation.create(schema='buckets', identifier=definition) -%}
    {%- if definition in marks -%}
        {%- set last_op = tidemark._known_last_op(rows) -%}
        {%- set standing = {'standing': tidemark.published_standing('checkpoints'), 'staged': [], 'definition_hash': none, 'columns': []} -%}
        {%- do tidemark.commit_manifest(
            [{'name': 'checkpoints', 'tables': ['core.checkpoints'], 'report': standing}] + tidemark.dropped_tables(definition, rows, last_op),
            [tidemark.newest_release(marks)]
        ) -%}
    {%- endif -%}
    {%- if tidemark.is_bucket_table(rows) -%}{%- do tidemark.drop_whatever(rows) -%}{%- endif -%}
    {%- do tidemark.drop_whatever(tidemark.ops_relation(rows)) -%}
    {%- if definition in marks -%}
        {%- do run_query('delete from ' ~ tidemark.core_relation('model_watermarks') ~ ' where model = ' ~ tidemark.literal(definition)) -%}
    {%- endif -%}
{%- endmacro %}
