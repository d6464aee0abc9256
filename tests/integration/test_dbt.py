"""dbt's own commands on the project: `ls`, `docs generate`, `--select state:modified+`; `plan` agrees with them."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from dbt.artifacts.schemas.run import RunExecutionResult
from dbt.cli.main import dbtRunner
from dbt.contracts.graph.nodes import SingularTestNode
from pyspark.sql import SparkSession

from dbt.adapters.tidemark.session_connection import SessionConnection
from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.project import definition_plan
from ingest.project.dbt_project import QUIET_OPTIONS
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, run_command, write_sources
from tests.harness.kill_points import intercept_statements
from tests.harness.pipeline import SourcePipeline
from tests.harness.project_copy import NAME, make_project


def run_dbt(pipeline: SourcePipeline, *arguments: str) -> list[str]:
    """Runs a dbt command as a user would."""
    options = ["--project-dir", str(pipeline.folder), "--profiles-dir", str(pipeline.folder)]
    done = dbtRunner().invoke([*QUIET_OPTIONS, *arguments, *options])
    assert done.success, done.exception
    return done.result if isinstance(done.result, list) else []


def planned_definitions(pipeline: SourcePipeline, state: str) -> set[str]:
    """The definitions of this source that `plan` lists in this state."""
    steps = definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)
    return {step.definition for step in steps if step.state == state and pipeline.source.name in step.definition}


@pytest.fixture
def pipeline(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> SourcePipeline:
    """A source with a table of two rows."""
    database.execute("create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')")
    return SourcePipeline(lake, source, settings, tmp_path)


def test_plan_and_dbt_agree_on_what_has_changed(pipeline: SourcePipeline) -> None:
    view = pipeline.view("t", {"id": "int", "v": "string"})
    query = f"select _row_key, id, v from {{{{ rows('{view}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    first, second = (pipeline.definition(name, query, **options) for name in ("one", "other"))
    assert planned_definitions(pipeline, "new") == {first, second}
    pipeline.sync()
    assert planned_definitions(pipeline, "unchanged") == {first, second}
    run_dbt(pipeline, "docs", "generate")
    catalog = json.loads((pipeline.folder / "target/catalog.json").read_text())["nodes"]
    assert {"bucket", "id", "v", "_op_id"} <= set(catalog[f"model.{NAME}.{first}"]["columns"])

    def modified() -> set[str]:
        names = run_dbt(pipeline, "ls", "--select", "state:modified+", "--state", str(pipeline.folder / "before"))
        return {name.rpartition(".")[2] for name in names}

    (pipeline.folder / "before").mkdir()
    shutil.copy(pipeline.folder / "target/manifest.json", pipeline.folder / "before")
    assert modified() == set()
    pipeline.definition("one", query + " where id > 1", **options)
    assert planned_definitions(pipeline, "changed") == modified() == {first}
    done = pipeline.model("run", "--select", "state:modified+", "--state", str(pipeline.folder / "before"))
    assert done[first].message == "definition changed, PUT 0, REMOVE 1"
    assert second not in done
    assert planned_definitions(pipeline, "changed") == set()
    path = pipeline.folder / f"models/staging/{view}.sql"
    path.write_text(path.read_text().replace("cast(columns['v'] as string)", "upper(columns['v'])"))
    pipeline.write(f"models/staging/{view}.sql", path.read_text())
    assert planned_definitions(pipeline, "changed") == {first, second}
    assert modified() == {view, first, second}
    done = pipeline.model("run", "--select", "state:modified+", "--state", str(pipeline.folder / "before"))
    assert [done[name].message for name in (first, second)] == [
        "definition changed, PUT 1, REMOVE 0",
        "definition changed, PUT 2, REMOVE 0",
    ]
    pipeline.write(f"models/staging/{view}.sql", path.read_text().rstrip() + ";\n")
    assert planned_definitions(pipeline, "unchanged") == {first, second}
    done = pipeline.model()
    assert {done[name].message for name in (first, second)} == {"unchanged"}
    assert planned_definitions(pipeline, "unchanged") == {first, second}


@pytest.mark.parametrize("command", [("compile",), ("docs", "generate")], ids=" ".join)
def test_commands_that_only_render_sql_do_not_query_the_log(
    pipeline: SourcePipeline, database: Database, command: tuple[str, ...]
) -> None:
    pipeline.view("t", {"id": "int"})
    pipeline.sync()
    database.execute("update t set id = id + 5")
    pipeline.ingest()
    statements: list[str] = []
    with intercept_statements(statements.append):
        run_dbt(pipeline, *command)
    assert [statement for statement in statements if "from raw." in statement or "cache table" in statement] == []


def test_a_definition_that_differs_from_its_contract_publishes_nothing(
    pipeline: SourcePipeline, database: Database
) -> None:
    view = pipeline.view("t", {"id": "int", "v": "string"})
    rows = f"{{{{ rows('{view}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    name = pipeline.definition("contracted", f"select _row_key, id, v from {rows}", **options)
    lookup = pipeline.write(
        f"models/buckets/access_{name}.sql",
        f"-- depends_on: {{{{ ref('{name}') }}}}\nselect id as user_id, v as note from {{{{ ref('{view}') }}}}",
    )

    def contracted(model: str, types: dict[str, str], **config: Any) -> dict[str, Any]:
        columns = [{"name": name, "data_type": data_type} for name, data_type in types.items()]
        return {"name": model, "config": {"contract": {"enforced": True}, **config}, "columns": columns}

    def contract(**types: str) -> None:
        meta = {"bucket": name, "parameters": ["user_id"]}
        access = contracted(lookup, {"user_id": "int", "note": "string"}, materialized="bucket_lookup", meta=meta)
        models = [contracted(name, types), access]
        pipeline.write("models/buckets/contracts.yml", json.dumps({"version": 2, "models": models}))

    contract(_row_key="string", id="integer", v="string")
    done = pipeline.sync()
    assert {done[name].status, done[lookup].status} == {"success"}
    database.execute("insert into t values (3, 'c')")
    contract(_row_key="string", id="bigint", note="string")
    assert planned_definitions(pipeline, "invalid") == {name, lookup}
    with pytest.raises(Failure, match=r"'id' is int \(contract: bigint\), 'note' is not selected \(contract: string\)"):
        pipeline.sync()
    assert pipeline.rows(f"select id from buckets.{name}") == [(1,), (2,)]
    contract(_row_key="string", id="int", v="string")
    pipeline.model()
    assert pipeline.rows(f"select id from buckets.{name}") == [(1,), (2,), (3,)]
    # A run creates the edited view before it compares the contract.
    pipeline.view("t", {"id": "int", "v": "string", "w": "string"})
    pipeline.definition("contracted", f"select _row_key, id, v, w from {rows}", **options)
    contract(_row_key="string", id="int", v="string", w="string")
    assert planned_definitions(pipeline, "changed") == {name, lookup}
    assert pipeline.model()[name].message == "definition changed, PUT 3, REMOVE 0"


def test_a_plan_lists_invalid_definitions_with_the_others(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    query = f"select _row_key, id from {{{{ rows('{pipeline.view('t', {'id': 'int'})}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    first, second = (pipeline.definition(name, query, **options) for name in ("one", "other"))
    lookup = pipeline.definition(
        "lookup", query + f" -- depends_on: {{{{ ref('{first}') }}}}", parameters=["id"], bucket=first
    )
    path = pipeline.folder / f"models/buckets/{lookup}.sql"
    path.write_text("{{ config(materialized='bucket_lookup') }}\n" + path.read_text())
    pipeline.sync()
    pipeline.definition("one", query, **options, bucket="id")
    steps = {step.definition: step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)}
    assert steps[first].state == steps[lookup].state == "invalid"
    assert steps[first].reason.startswith("meta has an unknown key 'bucket'")
    assert steps[lookup].reason == "a definition that it depends on is invalid"
    assert steps[second].state == "unchanged"
    pipeline.definition("other", query.replace(", id", ", no_such_column"), **options)
    steps = {step.definition: step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)}
    assert steps[second].state == "invalid"
    assert "no_such_column" in steps[second].reason
    pipeline.definition("other", query, **options)
    shown = run_command(tmp_path, *TIDEMARK, "plan")
    assert shown.returncode == 1
    assert "invalid" in shown.stdout
    assert "unchanged" in shown.stdout


def test_a_definition_is_planned_by_the_views_in_the_lake(
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
    pipeline.write(path, text.replace("cast(columns['v'] as string)", "{{ shown(\"columns['v']\") }}"))
    pipeline.write("macros/shown.sql", "{% macro shown(value) %}{{ value }}{% endmacro %}")
    query = f"select _row_key, id, v from {{{{ rows('{view}') }}}}"
    definition = pipeline.definition("one", query, bucket_by=[], object_id="id", evaluation="incremental")
    pipeline.sync()
    pipeline.write("macros/shown.sql", "{% macro shown(value) %}upper({{ value }}){% endmacro %}")
    capfd.readouterr()
    assert planned_definitions(pipeline, "changed") == {definition}
    assert capfd.readouterr().out == ""
    # The view is not created again: nothing has changed yet.
    assert pipeline.model("run", "--select", definition)[definition].message == "unchanged"
    run_loop = pipeline.run_loop()

    def message() -> str:
        return next(outcome.message for outcome in run_loop.model().outcomes if outcome.name == definition)

    assert message() == "definition changed, PUT 2, REMOVE 0"
    statements: list[str] = []
    with intercept_statements(statements.append):
        assert message() == "unchanged"
    assert [sql for sql in statements if "show create table" in sql or "create or replace view" in sql] == []
    # Another process creates the view again: a run with changes uses the new view.
    view_text = pipeline.spark.sql(f"show create table staging.{view}").collect()[0][0].partition("\nAS\n")[2]
    view_text = view_text.replace("upper(columns['v'])", "concat('-', columns['v'])")
    pipeline.spark.sql(f"create or replace view staging.{view} as {view_text}")
    database.execute("insert into t values (3, 'c')")
    pipeline.ingest()
    assert message() == "definition changed, PUT 3, REMOVE 0"
    assert message() == "unchanged"
    # A file changes during a run; a file that can't be parsed is reported, and no run uses the old text.
    pipeline.definition("one", query + " where id > {{ shown(", bucket_by=[], object_id="id", evaluation="incremental")
    with pytest.raises(Failure, match="the dbt project can't be parsed"):
        run_loop.model()
    pipeline.write("macros/shown.sql", "{% macro shown(value) %}lower({{ value }}){% endmacro %}")
    pipeline.definition("one", query + " where id > 1", bucket_by=[], object_id="id", evaluation="incremental")
    assert message() == "definition changed, PUT 2, REMOVE 1"
    assert pipeline.bucket(definition, "id, v") == [(f"{definition}[]", 2, "b"), (f"{definition}[]", 3, "c")]
    assert planned_definitions(pipeline, "unchanged") == {definition}


def test_a_stale_view_of_views_keeps_its_definition_unpublished(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    below = pipeline.view("t", {"id": "int"})
    above = pipeline.write(f"models/staging/{below}_all.sql", f"select * from {{{{ ref('{below}') }}}}")
    query = f"select * except (_checkpoint_id) from {{{{ ref('{above}') }}}}"
    definition = pipeline.definition("one", query, bucket_by=[], object_id="id", unique_key=["id"])
    pipeline.sync()
    pipeline.view("t", {"id": "int", "v": "string"})
    pipeline.model("run", "--select", below)
    # The view in between has its original columns: its text alone would not show the difference.
    refusal = f"reads '{above}', which was created when .* had other columns.*--select {above}"
    with pytest.raises(Failure, match=refusal):
        pipeline.model("run", "--select", definition)
    done = pipeline.model("run", "--select", above, definition)
    assert done[definition].message == "definition changed, PUT 2, REMOVE 0"
    assert pipeline.bucket(definition, "id, v") == [(f"{definition}[]", 1, "a"), (f"{definition}[]", 2, "b")]
    assert pipeline.model()[definition].message == "unchanged"


def test_data_tests_find_violations(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    pipeline.sync()
    database.execute("insert into t values (1)")
    pipeline.sync()
    tests = [node for node in pipeline.project.manifest.nodes.values() if isinstance(node, SingularTestNode)]
    assert all(node.depends_on.nodes for node in tests), "a test would run before its model"
    for table, test in (("core.events", "events_once"), ("core.row_state", "one_version_of_a_row")):
        main = pipeline.spark.sql(f"select snapshot_id from {table}.refs where name = 'main'").collect()[0].snapshot_id
        pipeline.spark.sql(f"insert into {table} select * from {table} where source = '{source.name}'")
        with pytest.raises(Failure, match=test):
            pipeline.model("test", "--select", test)
        pipeline.spark.sql(f"call system.rollback_to_snapshot('{table}', {main})")
        pipeline.model("test", "--select", test)


def test_dbt_retry_publishes_definitions_and_refuses_models_of_core(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    """dbt does not tell which nodes it retries. In one process, it shows the selection of the command before."""
    database.execute("create table t (id int primary key, v text); insert into t values (1, '7'), (2, 'b')")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("t", {"id": "int", "v": "string"})
    query = f"select _row_key, id, cast(v as int) as v from {{{{ rows('{view}') }}}}"
    name = pipeline.definition("cast", query, bucket_by=[], object_id="id", evaluation="incremental")
    options = ["--project-dir", str(pipeline.folder), "--profiles-dir", str(pipeline.folder)]

    def build_and_retry() -> tuple[str, str]:
        """The messages of the nodes that failed."""
        failed = []
        for command in (["build"], ["retry"]):
            done = dbtRunner().invoke([*QUIET_OPTIONS, *command, *options])
            assert isinstance(done.result, RunExecutionResult)
            failed.append(" ".join(str(each.message) for each in done.result.results if each.status == "error"))
            path.write_text(path.read_text().replace(" cast(v as int)", " try_cast(v as int)"))
        return failed[0], failed[1]

    pipeline.ingest()
    path = pipeline.folder / f"models/buckets/{name}.sql"
    failed, failed_again = build_and_retry()
    assert "CAST_INVALID_INPUT" in failed
    assert failed_again == ""
    rows = f"select id, v from buckets.{name} order by id"
    assert pipeline.rows(rows) == [(1, 7), (2, None)]

    database.execute("insert into t values (3, '9')")
    pipeline.ingest()

    def fail_insert(sql: str) -> None:
        if "insert into core.events" in sql:
            raise OSError("no space")

    with intercept_statements(fail_insert):
        failed, failed_again = build_and_retry()
    assert "no space" in failed
    assert "dbt retry does not build 'events'" in failed_again
    pipeline.model()
    assert pipeline.rows(rows) == [(1, 7), (2, None), (3, 9)]


def test_runs_on_an_empty_lake_do_not_block_later_releases(
    source: PostgresSource, lake: Lake, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    """In its own lake, by another process; runs that wait for the source's snapshots do not block releases either."""
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
    done = run_command(pipeline.folder, *first_runs, TIDEMARK_LAKE=str(tmp_path / "lake"))
    assert done.returncode == 0, done.stderr
    not_begun, not_whole, ids = done.stdout.splitlines()[-3:]
    assert "no job has written to this lake" in not_begun
    assert "Build all models first: dbt build" in not_whole
    assert ids == "[1, 2, 3]"


def test_dbt_in_a_process_of_its_own_prints_no_output_of_java(tmp_path: Path) -> None:
    make_project(tmp_path)
    query = "select row_number() over (order by id) as place from range(3)"  # Spark warns about such a window
    dbt = str(Path(sys.executable).with_name("dbt"))
    done = run_command(tmp_path, dbt, "show", "--inline", query, TIDEMARK_LAKE=str(tmp_path / "lake"))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "| place |" in done.stdout
    assert "WindowExec" not in done.stdout
    assert "WindowExec" in (tmp_path / "logs/spark.log").read_text()
    without_java = run_command(tmp_path, dbt, "show", "--inline", query, JAVA_HOME=str(tmp_path))
    assert without_java.returncode == 2
    assert "Spark can't be started (Java didn't start)" in without_java.stdout


@pytest.mark.usefixtures("spark")
def test_statements_have_the_settings_of_their_connection() -> None:
    """Each has its connection's settings, also after another connection or a hook has changed those of the session."""
    setting = "spark.sql.shuffle.partitions"
    one, other = (SessionConnection(server_side_parameters={setting: number}) for number in ("3", "4"))

    def read_setting(connection: SessionConnection) -> str | None:
        connection.cursor().execute("select 1")
        return SparkSession.builder.getOrCreate().conf.get(setting)

    assert [read_setting(connection) for connection in (one, other, one)] == ["3", "4", "3"]
    for statement in (f"set {setting} = 7", f"/* dbt */ -- a hook\nRESET {setting}"):
        one.cursor().execute(statement)
        assert read_setting(one) == "3"
