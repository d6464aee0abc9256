{#-
  The last step of a run (on-run-end): publishes the models that passed, with all that they depend on.

  1. The manifest of the staged tables is appended to a branch of `core.releases` that begins where this run began, and
     fast-forwarded: this commit decides the run. If another run has published in the meantime, it is refused.
  2. Each table's main is fast-forwarded to its branch (`apply_manifest`).
  3. The models' watermarks are written to `core.model_watermarks`, last.

  A kill before 1 has no effect. After a kill later, the next run begins with 2 and 3 (`finish_interrupted_release`).
-#}
{% macro publish(results) -%}
    {%- if not execute -%}
        {{ return('') }}
    {%- endif -%}
    {%- set passed = tidemark.publishable_models(results) -%}
    {%- do tidemark.drop_staged(results, passed) -%}
    {%- set watermarks = tidemark.watermarks() -%}
    {%- set changed_models = [] -%}
    {%- for model in passed if model.report.staged or tidemark.has_advanced(model, watermarks) -%}
        {%- do changed_models.append(model) -%}
    {%- endfor -%}
    {%- if changed_models -%}
        {%- set seen = passed | map(attribute='report') | map(attribute='seen') | unique | list -%}
        {%- do tidemark.commit_release(changed_models, seen) -%}
    {%- elif 'invalidated' in tidemark.invocation_cache() -%}
        {%- do tidemark.drop_branch(tidemark.get_core_relation('releases'), tidemark.branch()) -%}
    {%- endif -%}
    {%- do tidemark.record_states(results, passed) -%}
{%- endmacro %}

{#- The first step of a run (on-run-start): finishes a release that was interrupted between its steps. -#}
{% macro finish_interrupted_release() -%}
    {%- set releases = tidemark.get_core_relation('releases') -%}
    {%- if execute -%}
        {%- do tidemark.assert_cache_fresh(['core.releases', 'core.model_watermarks'] + tidemark.published_tables()) -%}
    {%- endif -%}
    {%- if execute and tidemark.relation_exists(releases) and tidemark.relation_exists(tidemark.get_core_relation('model_watermarks')) -%}
        {%- set last_finished = tidemark.newest_release(tidemark.watermarks()) -%}
        {%- set unfinished = [] -%}
        {%- if tidemark.highest(releases, 'release_id') > last_finished -%}
            {%- set unfinished = run_query(
                'select distinct release_id from ' ~ releases ~ ' where release_id > ' ~ last_finished ~ ' order by 1'
            ) -%}
        {%- endif -%}
        {%- for row in unfinished -%}
            {%- set manifest = run_query(
                'select model, `table`, branch, columns from ' ~ releases
                ~ ' where snapshot_id is not null and release_id = ' ~ row['release_id']
            ) -%}
            {%- do tidemark.assert_cache_fresh(manifest | map(attribute='table') | list) -%}
            {#- A table that was dropped manually since is left out: its definition is evaluated again (`bucket_plan`).
                -#}
            {%- set tables = [releases | string] -%}
            {%- for table in manifest | map(attribute='table') if tidemark.table_exists(table) -%}{%- do tables.append(table) -%}{%- endfor -%}
            {%- set refs = tidemark.refs(tables) -%}
            {#- If another process has finished the release, there may be branches of a later run: they must not be
                dropped. -#}
            {%- do tidemark.invocation_cache().pop('watermarks', none) -%}
            {%- if tidemark.newest_release(tidemark.watermarks()) < row['release_id'] | int -%}
                {%- do tidemark._raise_diverged(row['release_id'], manifest, refs) -%}
                {%- do tidemark.apply_manifest(row['release_id'], manifest, refs) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro %}

{#- Raises an error with the fix if another process moved a main right after the release was committed. The release is
    not undone: other tables of it may already have been moved. -#}
{% macro _raise_diverged(release_id, manifest, refs) -%}
    {%- set diverged = tidemark.diverged_tables(manifest, refs) -%}
    {%- set fixes = [] -%}
    {%- for row in manifest if row['table'] in diverged -%}
        {%- do fixes.append("call system.set_current_snapshot(table => '" ~ row['table'] ~ "', ref => '" ~ row['branch'] ~ "')") -%}
    {%- endfor -%}
    {%- if fixes -%}
        {{ exceptions.raise_compiler_error(
            'Release ' ~ release_id ~ ' can\'t be finished (core.releases): another process has moved main of its tables since. '
            ~ 'Restore the published snapshots with Spark, and run again: ' ~ fixes | join('; ') ~ '.'
        ) }}
    {%- endif -%}
{%- endmacro %}
