{#-
  Brings a definition's outputs up to date: `<name>`, the current rows, and `<name>__ops`, the log of ops.

      input not ready ────────► wait (with empty tables, if it is new)
      nothing changed ────────► advance the watermark
      inputs changed ─────────► evaluate (incremental: changed rows; full: all) ─┐
      definition changed ─────► evaluate all ────────────────────────────────────┤
                                                                                 ▼
              append the differences to the rows ► append them to the log ► delete replaced rows

  The first statement evaluates the query; the others read what it wrote. All of it is staged.
-#}
{% macro materialize_bucket(sql, pre_hooks, post_hooks) -%}
    {%- set settings = adapter.definition_settings(model) -%}
    {%- set plan = adapter.plan_definition(model, sql, settings, full_refresh=should_full_refresh()) -%}
    {%- set definition = plan.definition -%}
    {%- if var('tidemark_plan_only', false) -%}
        {%- do adapter.check_plan(model, sql, settings, plan) -%}
        {%- do tidemark.report_plan(plan) -%}
        {{ return({'relations': []}) }}
    {%- endif -%}
    {%- do adapter.check_contract(model, plan) -%}

    {{ run_hooks(pre_hooks) }}
    {%- set counts = {'put': 0, 'removed': 0} -%}
    {%- set log = {'last_op': plan.last_op, 'has_integer_keys': plan.has_integer_keys} -%}
    {%- set staged = [] -%}
    {%- if plan.evaluates or not (plan.is_there or definition.name in tidemark.watermarks()) -%}
        {%- set columns = adapter.bucket_columns(model, sql, settings, plan) -%}
        {%- set change = adapter.prepare_bucket_tables(model, sql, settings, columns, plan) -%}
    {%- endif -%}
    {%- if plan.evaluates -%}
        {%- set last_op = adapter.last_op(model) -%}
        {%- set input_rows = plan.changed_rows if plan.is_published else tidemark.rows_to_evaluate(plan) -%}
        {%- call statement('rows') -%}
            {{ tidemark.insert_differences(this, sql, settings, columns, plan, change, last_op, plan.op_slices(input_rows)) }}
        {%- endcall -%}
        {%- set counts = tidemark.count_differences(this, last_op, plan.positions) -%}
        {%- set log = {
            'last_op': counts.last_op,
            'has_integer_keys': counts.has_integer_keys and (change.is_new or plan.has_integer_keys),
        } -%}
        {%- if counts.put + counts.removed -%}
            {%- call statement('ops') -%}
                {{ tidemark.insert_ops(this, columns, last_op, plan.positions) }}
            {%- endcall -%}
            {#- After the log: it also deletes the markers of removed rows, which the log reads. -#}
            {%- if not change.is_new -%}
                {%- call statement('replaced') -%}
                    {{ tidemark.delete_replaced_rows(this, last_op, plan.positions) }}
                {%- endcall -%}
            {%- endif -%}
            {%- do staged.extend([this | string, tidemark.ops_relation(this) | string]) -%}
        {%- elif plan.is_published -%}
            {%- do adapter.drop_branch(this | string) -%}
        {%- else -%}
            {%- do staged.append(this | string) -%}
        {%- endif -%}
    {%- endif %}
    {{ run_hooks(post_hooks) }}
    {%- set kind = 'incremental' if plan.scope == 'changes' else 'full' -%}
    {%- set evaluation = {'kind': kind, 'why': plan.reason, 'put': counts.put, 'removed': counts.removed} -%}
    {%- if plan.evaluates and not plan.is_published -%}
        {%- do evaluation.update({'rows': input_rows}) -%}
    {%- endif -%}
    {%- do tidemark.run().record(
        model.unique_id,
        positions=plan.positions,
        staged=staged,
        definition_hash=plan.definition_hash,
        columns=columns | map(attribute='name') | list if plan.evaluates else plan.published_columns,
        view_tables=plan.view_tables,
        last_op=log.last_op,
        has_integer_keys=log.has_integer_keys,
        evaluation=evaluation if plan.evaluates else none,
        is_waiting=plan.is_waiting
    ) -%}
    {%- set message = plan.reason ~ (', PUT ' ~ counts.put ~ ', REMOVE ' ~ counts.removed if plan.evaluates else '') -%}
    {%- do store_result('main', response=adapter.response(
        message, counts.put + counts.removed, staged=staged | length > 0, waiting=plan.is_waiting, evaluation=evaluation if plan.evaluates else none
    )) -%}
    {{ return({'relations': [this, tidemark.ops_relation(this)]}) }}
{%- endmacro %}
