"""What users of dbt expect of a project: `ls`, `docs generate`, `--select state:modified+`; and that `plan` agrees."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from dbt.cli.main import dbtRunner
from dbt.contracts.graph.nodes import SingularTestNode

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.project import definition_plan
from ingest.project.dbt_project import QUIET_OPTIONS
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, finished, write_sources
from tests.harness.kill_points import watched
from tests.harness.pipeline import SourcePipeline


def dbt(pipeline: SourcePipeline, *arguments: str) -> list[str]:
    """A command of dbt, as a person gives it."""
    options = ["--project-dir", str(pipeline.folder), "--profiles-dir", str(pipeline.folder / "profiles")]
    done = dbtRunner().invoke([*QUIET_OPTIONS, *arguments, *options])
    assert done.success, done.exception
    return done.result if isinstance(done.result, list) else []


def planned(pipeline: SourcePipeline, state: str) -> set[str]:
    """The definitions of this source that a run will find to be `state`."""
    steps = definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)
    return {step.definition for step in steps if step.state == state and pipeline.source.name in step.definition}


def test_plan_and_dbt_agree_on_what_has_changed(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("t", {"id": "int", "v": "string"})
    query = f"select _row_key, id, v from {{{{ rows('{view}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    one, other = (pipeline.definition(name, query, **options) for name in ("one", "other"))
    assert planned(pipeline, "new") == {one, other}
    pipeline.sync()
    assert planned(pipeline, "unchanged") == {one, other}
    dbt(pipeline, "docs", "generate")
    catalog = json.loads((pipeline.folder / "target/catalog.json").read_text())["nodes"]
    assert {"bucket", "id", "v", "_op_id"} <= set(catalog[f"model.tidemark.{one}"]["columns"])

    def modified() -> set[str]:
        names = dbt(pipeline, "ls", "--select", "state:modified+", "--state", str(pipeline.folder / "before"))
        return {name.rpartition(".")[2] for name in names}

    (pipeline.folder / "before").mkdir()
    shutil.copy(pipeline.folder / "target/manifest.json", pipeline.folder / "before")
    assert modified() == set()
    pipeline.definition("one", query + " where id > 1", **options)
    assert planned(pipeline, "changed") == modified() == {one}
    done = pipeline.model("run", "--select", "state:modified+", "--state", str(pipeline.folder / "before"))
    assert done[one].message == "definition changed, PUT 0, REMOVE 1"
    assert other not in done
    assert planned(pipeline, "changed") == set()
    path = pipeline.folder / f"models/staging/{view}.sql"
    path.write_text(path.read_text().replace("cast(columns['v'] as string)", "upper(columns['v'])"))
    pipeline.write(f"models/staging/{view}.sql", path.read_text())
    assert planned(pipeline, "changed") == {one, other}
    assert modified() == {view, one, other}
    done = pipeline.model("run", "--select", "state:modified+", "--state", str(pipeline.folder / "before"))
    assert [done[name].message for name in (one, other)] == [
        "definition changed, PUT 1, REMOVE 0",
        "definition changed, PUT 2, REMOVE 0",
    ]
    pipeline.write(f"models/staging/{view}.sql", path.read_text().rstrip() + ";\n")
    assert planned(pipeline, "unchanged") == {one, other}
    done = pipeline.model()
    assert {done[name].message for name in (one, other)} == {"unchanged"}
    assert planned(pipeline, "unchanged") == {one, other}


def test_a_plan_names_what_is_refused_beside_the_others(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    query = f"select _row_key, id from {{{{ rows('{pipeline.view('t', {'id': 'int'})}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    one, other = (pipeline.definition(name, query, **options) for name in ("one", "other"))
    lookup = pipeline.definition(
        "lookup", query + f" -- depends_on: {{{{ ref('{one}') }}}}", parameters=["id"], bucket=one
    )
    path = pipeline.folder / f"models/buckets/{lookup}.sql"
    path.write_text("{{ config(materialized='bucket_lookup') }}\n" + path.read_text())
    pipeline.sync()
    pipeline.definition("one", query, **options, bucket="id")
    steps = {step.definition: step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)}
    assert steps[one].state == steps[lookup].state == "invalid"
    assert steps[one].reason.startswith("meta has an unknown key 'bucket'")
    assert steps[lookup].reason == "a definition that it depends on is invalid"
    assert steps[other].state == "unchanged"
    shown = finished(tmp_path, *TIDEMARK, "plan")
    assert shown.returncode == 1
    assert "invalid" in shown.stdout
    assert "unchanged" in shown.stdout


def test_a_definition_goes_by_the_views_that_stand_in_the_lake(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    capfd: pytest.CaptureFixture[str],
) -> None:
    database.execute("create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("t", {"id": "int", "v": "string"})
    path = f"models/staging/{view}.sql"
    text = (pipeline.folder / path).read_text()
    pipeline.write(path, text.replace("cast(columns['v'] as string)", "{{ told(\"columns['v']\") }}"))
    pipeline.write("macros/told.sql", "{% macro told(value) %}{{ value }}{% endmacro %}")
    query = f"select _row_key, id, v from {{{{ rows('{view}') }}}}"
    one = pipeline.definition("one", query, bucket_by=[], object_id="id", evaluation="incremental")
    pipeline.sync()
    pipeline.write("macros/told.sql", "{% macro told(value) %}upper({{ value }}){% endmacro %}")
    capfd.readouterr()
    assert planned(pipeline, "changed") == {one}
    assert capfd.readouterr().out == ""
    # The view is not made anew: nothing has changed yet.
    assert pipeline.model("run", "--select", one)[one].message == "unchanged"
    run_loop = pipeline.run_loop()

    def message() -> str:
        return next(outcome.message for outcome in run_loop.model().outcomes if outcome.name == one)

    assert message() == "definition changed, PUT 2, REMOVE 0"
    statements: list[str] = []
    with watched(statements.append):
        assert message() == "unchanged"
    assert [sql for sql in statements if "show create table" in sql or "create or replace view" in sql] == []
    # Another process makes it anew: a run that has something to do goes by that.
    made = pipeline.spark.sql(f"show create table staging.{view}").collect()[0][0].partition("\nAS\n")[2]
    made = made.replace("upper(columns['v'])", "concat('-', columns['v'])")
    pipeline.spark.sql(f"create or replace view staging.{view} as {made}")
    database.execute("insert into t values (3, 'c')")
    pipeline.land()
    assert message() == "definition changed, PUT 3, REMOVE 0"
    assert message() == "unchanged"
    # While it runs, files change; one that can't be parsed is told, and nothing is run with the old text.
    pipeline.definition("one", query + " where id > {{ told(", bucket_by=[], object_id="id", evaluation="incremental")
    with pytest.raises(Failure, match="the dbt project can't be parsed"):
        run_loop.model()
    pipeline.write("macros/told.sql", "{% macro told(value) %}lower({{ value }}){% endmacro %}")
    pipeline.definition("one", query + " where id > 1", bucket_by=[], object_id="id", evaluation="incremental")
    assert message() == "definition changed, PUT 2, REMOVE 1"
    assert pipeline.bucket(one, "id, v") == [(f"{one}[]", 2, "b"), (f"{one}[]", 3, "c")]
    assert planned(pipeline, "unchanged") == {one}


def test_a_stale_view_of_views_keeps_its_definition_unpublished(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    below = pipeline.view("t", {"id": "int"})
    above = pipeline.write(f"models/staging/{below}_all.sql", f"select * from {{{{ ref('{below}') }}}}")
    query = f"select * except (_checkpoint_id) from {{{{ ref('{above}') }}}}"
    one = pipeline.definition("one", query, bucket_by=[], object_id="id", unique_key=["id"])
    pipeline.sync()
    pipeline.view("t", {"id": "int", "v": "string"})
    pipeline.model("run", "--select", below)
    # The view between has the columns that it was made with: its text is not what would make the difference later.
    refusal = f"reads '{above}', which was created when .* had other columns.*--select {above}"
    with pytest.raises(Failure, match=refusal):
        pipeline.model("run", "--select", one)
    done = pipeline.model("run", "--select", above, one)
    assert done[one].message == "definition changed, PUT 2, REMOVE 0"
    assert pipeline.bucket(one, "id, v") == [(f"{one}[]", 1, "a"), (f"{one}[]", 2, "b")]
    assert pipeline.model()[one].message == "unchanged"


def test_data_tests_find_what_must_not_be(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    pipeline.sync()
    database.execute("insert into t values (1)")
    pipeline.sync()
    tests = [node for node in pipeline.project.manifest.nodes.values() if isinstance(node, SingularTestNode)]
    assert all(node.depends_on.nodes for node in tests), "one would run before what it tests"
    for table, test in (("core.events", "events_once"), ("core.row_state", "one_version_of_a_row")):
        main = pipeline.spark.sql(f"select snapshot_id from {table}.refs where name = 'main'").collect()[0].snapshot_id
        pipeline.spark.sql(f"insert into {table} select * from {table} where source = '{source.name}'")
        with pytest.raises(Failure, match=test):
            pipeline.model("test", "--select", test)
        pipeline.spark.sql(f"call system.rollback_to_snapshot('{table}', {main})")
        pipeline.model("test", "--select", test)


def test_runs_on_an_empty_lake_do_not_block_later_releases(
    source: PostgresSource, lake: Lake, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    """In a lake of its own, by a process of its own; nor do those that wait for the source's snapshots."""
    database.execute("create table t (id int primary key); insert into t select generate_series(1, 3)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path / "project")
    view = pipeline.view("t", {"id": "int"})
    name = pipeline.definition(
        "whole", f"select id from {{{{ ref('{view}') }}}}", bucket_by=[], object_id="id", unique_key=["id"]
    )
    write_sources(pipeline.folder, source.model_copy(update={"snapshot_hold": "source"}))
    (tmp_path / "lake").mkdir()
    query = f"select id from buckets.{name} order by id"
    first_runs = (sys.executable, "-m", "tests.harness.first_runs", query)
    done = finished(pipeline.folder, *first_runs, TIDEMARK_LAKE=str(tmp_path / "lake"))
    assert done.returncode == 0, done.stderr
    not_begun, not_whole, ids = done.stdout.splitlines()[-3:]
    assert "no job has written to this lake" in not_begun
    assert "Build all models first: dbt build" in not_whole
    assert ids == "[1, 2, 3]"
