{#-
  The last step of a run (on-run-end): what passed, with all that it depends on, becomes visible.

  1. The manifest of what is staged is appended to a branch of `core.releases` that begins where this run began, and
     fast-forwarded: the one commit by which the run takes place. Had another run published meanwhile, it is refused.
  2. Each table's main is fast-forwarded to its branch (`finish`).
  3. `core.model_watermarks` gets the models' marks, last.

  Killed before 1, nothing has happened; killed after it, the next run begins with 2 and 3 (`recover`).
-#}
{% macro publish(results) -%}
    {%- if not execute -%}
        {{ return('') }}
    {%- endif -%}
    {%- set passed = tidemark.passed_models(results) -%}
    {%- do tidemark.drop_staged(results, passed) -%}
    {%- set marks = tidemark.marks() -%}
    {%- set news = [] -%}
    {%- for model in passed if model.report.staged or tidemark.has_moved(model, marks) -%}
        {%- do news.append(model) -%}
    {%- endfor -%}
    {%- if news -%}
        {%- set seen = passed | map(attribute='report') | map(attribute='seen') | unique | list -%}
        {%- do tidemark.commit_manifest(news, seen) -%}
    {%- elif 'torn' in tidemark.run_memory() -%}
        {%- do tidemark.drop_branch(tidemark.core_relation('releases'), tidemark.branch()) -%}
    {%- endif -%}
    {%- do tidemark.record_states(results, passed) -%}
{%- endmacro %}

{#- The first step of a run (on-run-start): finishes a release that was cut off between its steps. -#}
{% macro recover() -%}
    {%- set releases = tidemark.core_relation('releases') -%}
    {%- if execute -%}
        {%- do tidemark.check_listed(['core.releases', 'core.model_watermarks'] + tidemark.marked_tables()) -%}
    {%- endif -%}
    {%- if execute and tidemark.is_built(releases) and tidemark.is_built(tidemark.core_relation('model_watermarks')) -%}
        {%- set done = tidemark.newest_release(tidemark.marks()) -%}
        {%- set open = [] -%}
        {%- if tidemark.highest(releases, 'release_id') > done -%}
            {%- set open = run_query(
                'select distinct release_id from ' ~ releases ~ ' where release_id > ' ~ done ~ ' order by 1'
            ) -%}
        {%- endif -%}
        {%- for row in open -%}
            {%- set manifest = run_query(
                'select model, `table`, branch, columns from ' ~ releases
                ~ ' where snapshot_id is not null and release_id = ' ~ row['release_id']
            ) -%}
            {%- do tidemark.check_listed(manifest | map(attribute='table') | list) -%}
            {#- A table that somebody has dropped since is left out: its definition is evaluated anew (`bucket_plan`). -#}
            {%- set tables = [releases | string] -%}
            {%- for table in manifest | map(attribute='table') if tidemark.is_built_table(table) -%}{%- do tables.append(table) -%}{%- endfor -%}
            {%- set refs = tidemark.refs(tables) -%}
            {#- If it is finished by now, there may be branches of a run that began after that: not to be dropped. -#}
            {%- do tidemark.run_memory().pop('marks', none) -%}
            {%- if tidemark.newest_release(tidemark.marks()) < row['release_id'] | int -%}
                {%- do tidemark._explain_moved(row['release_id'], manifest, refs) -%}
                {%- do tidemark.finish(row['release_id'], manifest, refs) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro %}

{#- Says what to do where somebody moved a main in the moment after the release was committed. It is not taken back: others of its
    tables may have been moved on. -#}
{% macro _explain_moved(release_id, manifest, refs) -%}
    {%- set moved = tidemark.moved_mains(manifest, refs) -%}
    {%- set calls = [] -%}
    {%- for row in manifest if row['table'] in moved -%}
        {%- do calls.append("call system.set_current_snapshot(table => '" ~ row['table'] ~ "', ref => '" ~ row['branch'] ~ "')") -%}
    {%- endfor -%}
    {%- if calls -%}
        {{ exceptions.raise_compiler_error(
            'Release ' ~ release_id ~ ' can not be finished (core.releases): somebody has moved main of its tables since. '
            ~ 'Give them what was published, by Spark, and run again: ' ~ calls | join('; ') ~ '.'
        ) }}
    {%- endif -%}
{%- endmacro %}
