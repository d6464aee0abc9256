{#-
  Publishes the effect of statements on a table of a model, on the invocation's branch, in the same way as a run: by a
  release that leaves the model's watermark unchanged. A concurrent run is refused, and succeeds when it is repeated.
  If a run has written the table in the meantime, the table is left to the next maintenance.
-#}
{% macro publish_maintenance(model, table, statements, summary) -%}
    {%- set base = tidemark.refs([table])[table].main -%}
    {%- for statement in statements -%}
        {%- do run_query(statement) -%}
    {%- endfor -%}
    {%- do tidemark.invocation_cache().pop('watermarks', none) -%}
    {%- do tidemark.finish_interrupted_release() -%}
    {%- set watermarks = tidemark.watermarks() -%}
    {%- set refs = tidemark.refs([table]) -%}
    {%- set staged = refs[table].get(tidemark.branch(), base) -%}
    {%- if staged == base or refs[table].main != base or model not in watermarks -%}
        {%- do tidemark.drop_branch(table, tidemark.branch()) -%}
        {%- if refs[table].main != base -%}
            {%- do log(table ~ ': a run wrote to it in the meantime; left to the next maintenance', info=true) -%}
        {%- endif -%}
    {%- else -%}
        {%- set watermark = watermarks[model].values() | first -%}
        {%- set report = {
            'positions': tidemark.published_positions(model), 'staged': [table],
            'definition_hash': watermark.definition_hash, 'columns': watermark.columns, 'view_tables': watermark.view_tables,
        } -%}
        {%- set models = [{'name': model, 'tables': [table], 'report': report}] -%}
        {%- do tidemark.commit_release(models, [tidemark.newest_release(watermarks)]) -%}
        {%- do log(table ~ ': ' ~ summary, info=true) -%}
    {%- endif -%}
{%- endmacro %}
