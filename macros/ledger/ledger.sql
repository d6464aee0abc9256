{#-
  A table that only grows: each run appends the rows that the model selects. Nothing is committed if the model renders
  `empty_select()`, or if none of its sources has advanced, as before the first commit of a source. With `supersedes`
  (the key of a row) the appended rows replace the older versions of their keys, unless the table is new. The rows are
  appended first and the old ones deleted after, so that the model is evaluated once and no join shuffles the target.
  Both commits go to the run's branch, so no reader sees one without the other.
-#}
{% materialization ledger, adapter='tidemark' %}
    {%- set supersedes = config.get('supersedes', []) -%}
    {%- set moved = tidemark.run().advanced(model.name) -%}
    {%- set new = moved and '/* nothing new */' not in sql -%}
    {%- set is_there = tidemark.relation_exists(this) -%}

    {{ run_hooks(pre_hooks) }}
    {%- if not is_there %}
        {%- call statement('create') -%}
            {{ tidemark.create_ledger(this, 'select * from (' ~ sql ~ ') where false') }}
        {%- endcall -%}
        {%- do adapter.cache_added(this) -%}
    {%- endif %}
    {%- if new %}
        {%- call statement('append') -%}
            insert into {{ this }} select * from ({{ sql }})
        {%- endcall -%}
    {%- endif %}
    {%- if new and supersedes and is_there %}
        {%- call statement('supersede') -%}
            {{ tidemark.delete_superseded(this, supersedes, moved) }}
        {%- endcall -%}
    {%- endif %}
    {{ run_hooks(post_hooks) }}
    {%- do persist_docs(this, model) -%}
    {%- do tidemark.run().record(model.unique_id, positions=tidemark.run().positions(model.name), staged=[this | string] if new else []) -%}
    {%- do store_result('main', response=adapter.response('appended' if new else 'nothing new', staged=new)) -%}
    {{ return({'relations': [this]}) }}
{% endmaterialization %}
