{#-
  dbt-spark's `incremental` with one more strategy, `ledger`, for the models of `core`:

  - The first run creates the table. Each run appends the rows that the model selects. Nothing is committed if the model
    calls `nothing_new()`, or if none of its sources has advanced, for example before the first commit of a source.
  - With a `unique_key`, the older versions of the appended keys are deleted afterwards. So the query is evaluated once, and
    Spark does not shuffle the table for a join (docs/decisions/0002).
  - All commits go to the run's branch (docs/decisions/0001). Models with the config `staged: false` are written by the
    release itself.
-#}
{% materialization incremental, adapter='tidemark' %}
    {%- if config.get('incremental_strategy') != 'ledger' -%}
        {{ return(materialization_incremental_spark()) }}
    {%- endif -%}
    {%- do tidemark.run().assert_builds(model) -%}
    {%- set is_first_run = not is_incremental() -%}
    {%- set unique_key = config.get('unique_key') -%}

    {{ run_hooks(pre_hooks) }}
    {%- if is_first_run -%}
        {%- call statement('create') -%}
            {{ tidemark.create_ledger_table(this, sql) }}
        {%- endcall -%}
        {%- do adapter.cache_added(this.incorporate(type='table')) -%}
    {%- endif -%}
    {%- set has_new_rows = tidemark.run().has_new_rows(model) -%}
    {%- if has_new_rows -%}
        {%- call statement('append') -%}
            insert into {{ this }} {{ sql }}
        {%- endcall -%}
    {%- endif -%}
    {%- if has_new_rows and unique_key and not is_first_run -%}
        {%- call statement('delete_superseded') -%}
            {{ tidemark.delete_superseded(this, unique_key, tidemark.run().advanced(model.name), tidemark.run().changed_tables) }}
        {%- endcall -%}
    {%- endif -%}
    {{ run_hooks(post_hooks) }}

    {%- do persist_docs(this, model) -%}
    {%- set positions = tidemark.run().positions(model.name) -%}
    {%- do tidemark.run().record(
        model.unique_id,
        positions=positions,
        staged=[this | string] if has_new_rows else []
    ) -%}
    {%- do store_result('main', response=adapter.response(
        'appended' if has_new_rows else 'nothing new', staged=has_new_rows, positions=positions
    )) -%}
    {{ return({'relations': [this]}) }}
{% endmaterialization %}
