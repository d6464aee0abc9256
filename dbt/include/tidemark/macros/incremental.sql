{#-
  dbt-spark's `incremental` with one more strategy, `ledger`, for tables that releases publish:

  - The first run creates the table; each run appends the rows that the model selects. Nothing is committed if the model
    says `nothing_new()`, or if none of its sources has advanced, as before the first commit of a source.
  - With a `unique_key` the appended rows then replace the older versions of their keys. The model is evaluated once, and
    no join shuffles the table.
  - All commits go to the run's branch (docs/decisions/0001, 0002), unless `staged` is false.
-#}
{% materialization incremental, adapter='tidemark', supported_languages=['sql', 'python'] %}
    {%- if config.get('incremental_strategy') != 'ledger' -%}
        {{ return(materialization_incremental_spark()) }}
    {%- endif -%}
    {%- set is_first_run = not is_incremental() -%}
    {%- set unique_key = config.get('unique_key') -%}

    {{ run_hooks(pre_hooks) }}
    {%- if is_first_run -%}
        {%- call statement('create') -%}
            {{ tidemark.create_ledger_table(this, sql) }}
        {%- endcall -%}
        {%- do adapter.cache_added(this) -%}
    {%- endif -%}
    {%- set has_new_rows = tidemark.run().has_new_rows(model) -%}
    {%- if has_new_rows -%}
        {%- call statement('append') -%}
            insert into {{ this }} {{ sql }}
        {%- endcall -%}
    {%- endif -%}
    {%- if has_new_rows and unique_key and not is_first_run -%}
        {%- call statement('delete_superseded') -%}
            {{ tidemark.delete_superseded(this, unique_key, tidemark.run().advanced(model.name)) }}
        {%- endcall -%}
    {%- endif -%}
    {{ run_hooks(post_hooks) }}

    {%- do persist_docs(this, model) -%}
    {%- do tidemark.run().record(
        model.unique_id,
        positions=tidemark.run().positions(model.name),
        staged=[this | string] if has_new_rows else []
    ) -%}
    {%- do store_result('main', response=adapter.response('appended' if has_new_rows else 'nothing new', staged=has_new_rows)) -%}
    {{ return({'relations': [this]}) }}
{% endmaterialization %}
