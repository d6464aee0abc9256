{#-
  A table that only grows: every run appends what the model selects. A model with nothing to add renders `nothing_new()`, or
  is of sources none of which has moved, as all are before the first landing; then nothing is committed. With `supersedes`
  (the key of a row) the appended rows replace the older versions of their keys, unless the table is new: append first,
  delete after, so that the model is evaluated once and no join shuffles the target. Both land on the run's branch (see
  publish.sql), so no reader ever sees one without the other.
-#}
{% materialization ledger, adapter='spark' %}
    {%- set supersedes = config.get('supersedes', []) -%}
    {%- set moved = tidemark.moved(model.name) -%}
    {%- set new = moved and '/* nothing new */' not in sql -%}
    {%- set is_there = tidemark.is_built(this) -%}

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
    {%- set standing = tidemark.standing(model.name) -%}
    {%- if new and supersedes and is_there %}
        {%- call statement('supersede') -%}
            {{ tidemark.delete_superseded(this, supersedes, moved) }}
        {%- endcall -%}
    {%- endif %}
    {{ run_hooks(post_hooks) }}
    {%- do persist_docs(this, model) -%}
    {%- do tidemark.report(standing, 'appended' if new else 'nothing new', staged=[this | string] if new else []) -%}
    {{ return({'relations': [this]}) }}
{% endmaterialization %}
