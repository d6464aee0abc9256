{#-
  Publishes what statements did to a table of a model, on the invocation's branch, as a run of dbt publishes: by a manifest
  that leaves the model's mark where it is. A run that was under way is refused then, and takes place when it is
  repeated. The other way round, a table that a run has written meanwhile is left to the next time.
-#}
{% macro publish_upkeep(model, table, statements, done) -%}
    {%- set base = tidemark.refs([table])[table].main -%}
    {%- for statement in statements -%}
        {%- do run_query(statement) -%}
    {%- endfor -%}
    {%- do tidemark.run_memory().pop('marks', none) -%}
    {%- do tidemark.recover() -%}
    {%- set marks = tidemark.marks() -%}
    {%- set refs = tidemark.refs([table]) -%}
    {%- set staged = refs[table].get(tidemark.branch(), base) -%}
    {%- if staged == base or refs[table].main != base or model not in marks -%}
        {%- do tidemark.drop_branch(table, tidemark.branch()) -%}
        {%- if refs[table].main != base -%}
            {%- do log(table ~ ': a run wrote it meanwhile; left to the next time', info=true) -%}
        {%- endif -%}
    {%- else -%}
        {%- set mark = marks[model].values() | first -%}
        {%- set report = {
            'standing': tidemark.published_standing(model), 'staged': [table],
            'definition_hash': mark.definition_hash, 'columns': mark.columns, 'view_tables': mark.view_tables,
        } -%}
        {%- set models = [{'name': model, 'tables': [table], 'report': report}] -%}
        {%- do tidemark.commit_manifest(models, [tidemark.newest_release(marks)]) -%}
        {%- do log(table ~ ': ' ~ done, info=true) -%}
    {%- endif -%}
{%- endmacro %}
