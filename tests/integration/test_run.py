"""The run loop as a whole: pgbench's balances at every checkpoint, and `kill -9` of the process at several points."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ingest.common import log_repeats
from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.lake.source_tables import DONE, SourceTable
from ingest.pipeline import run_loop as run_loop_module
from ingest.pipeline.ingest_jobs import Jobs
from ingest.pipeline.run_loop import DbtRun, Pipeline
from ingest.project.dbt_project import Project
from ingest.stream import flush_policy
from tests.conftest import Database
from tests.harness.commands import run_command, write_sources
from tests.harness.pgbench import assert_pgbench_equals, balances, have_ready_snapshots, pgbench, pgbench_tables
from tests.harness.pipeline import SourcePipeline
from tests.harness.waiting import wait_until


@pytest.fixture
def pipeline(lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path) -> SourcePipeline:
    return SourcePipeline(lake, source, settings, tmp_path)


@pytest.mark.parametrize("writers", [1, 3])
def test_balances_agree_at_every_checkpoint(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    writers: int,
) -> None:
    pipeline = SourcePipeline(lake, new_source(writers=writers), settings, tmp_path)
    pgbench_tables(database)
    view = pipeline.view("pgbench_tellers", {"tid": "int", "bid": "int", "tbalance": "int"})
    tellers = pipeline.definition(
        "tellers",
        f"select _row_key, tid, bid, tbalance from {{{{ rows('{view}') }}}}",
        bucket_by=["bid"],
        object_id="tid",
        evaluation="incremental",
    )
    run_loop = pipeline.run_loop()
    checked: list[dict[str, int]] = []

    def check(run: DbtRun) -> None:
        sums = balances(pipeline)
        # The tellers' definition may be ready before the accounts' snapshot is.
        if not run.waiting and len(sums) == 4 and have_ready_snapshots(pipeline, 4):
            checked.append(sums)
            assert len(set(sums.values())) == 1, sums
        if len(checked) == 4:
            run_loop.stop()

    with pgbench(database, clients=4, rate=60), run_loop.running():
        run_loop.loop(check)
    assert checked[-1] != checked[0]
    pipeline.sync()
    assert_pgbench_equals(pipeline, database)
    assert sorted(pipeline.bucket(tellers, "tid, tbalance")) == sorted(
        database.execute(f"""select '{tellers}["' || bid || '"]', tid, tbalance from pgbench_tellers""")
    )
    assert pipeline.replayed(tellers) == pipeline.logged_rows(tellers)


def test_stopping_ends_the_jobs_before_the_current_run_ends(pipeline: SourcePipeline, database: Database) -> None:
    database.execute("create table t (id int primary key)")
    run_loop = pipeline.run_loop()
    jobs = {f"stream {pipeline.source.name} 1", f"snapshot {pipeline.source.name}"}

    def stop_and_join(_: DbtRun) -> None:
        running = [thread for thread in threading.enumerate() if thread.name in jobs]
        assert len(running) == 2
        run_loop.stop()
        for thread in running:
            thread.join(60)
        assert not any(thread.is_alive() for thread in running)

    with run_loop.running():
        run_loop.loop(stop_and_join)


def numbers(pipeline: SourcePipeline, database: Database) -> tuple[str, str]:
    """A table in the source, committed to the lake, with its view and a definition."""
    database.execute(
        "create table t (id int primary key, total int); insert into t select i, i from generate_series(1, 4) i"
    )
    view = pipeline.view("t", {"id": "int", "total": "int"})
    query = f"select _row_key, id, total from {{{{ rows('{view}') }}}}"
    definition = pipeline.definition("numbers", query, bucket_by=[], object_id="id", evaluation="incremental")
    pipeline.ingest()
    return view, definition


def test_the_run_loop_runs_the_same_tests_as_dbt(pipeline: SourcePipeline, database: Database) -> None:
    view, definition = numbers(pipeline, database)
    pipeline.write(
        f"models/buckets/{definition}.yml",
        f"models:\n  - name: {definition}\n    columns:\n      - name: total\n        data_tests:\n"
        f"          - relationships:\n              arguments: {{to: ref('{view}'), field: id}}\n",
    )
    run_loop = pipeline.run_loop()
    (first,) = run_loop.model().changes
    assert first.startswith(f"{definition}: ")
    assert first.endswith(f", PUT {len(pipeline.bucket(definition, 'id'))}, REMOVE 0")
    assert run_loop.model().changes == []
    database.execute("update t set total = 99 where id = 1")
    pipeline.ingest()
    with pytest.raises(Failure, match="relationships"):
        run_loop.model()
    assert (f"{definition}[]", 1, 1) in pipeline.bucket(definition, "id, total")


def test_a_failing_definition_is_retried_with_backoff_and_logged_once(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, definition = numbers(pipeline, database)
    pipeline.write(f"tests/data_tests/never_{definition}.sql", f"select * from {{{{ ref('{definition}') }}}}")
    run_loop = pipeline.run_loop()
    runs: list[DbtRun] = []
    monkeypatch.setattr(run_loop_module, "MAINTENANCE_RUNS", 4)
    monkeypatch.setattr(run_loop_module, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(log_repeats, "FIRST_SECONDS", 3600.0)  # whatever the duration of the runs
    monkeypatch.setattr(run_loop, "begin_maintenance", run_loop.stop)
    with pytest.raises(Failure, match="never"):
        run_loop.model()
    database.execute("insert into t values (5, 5)")
    with run_loop.running():
        run_loop.loop(runs.append)  # until the fourth run; two of them only after a pause
    assert runs == []
    assert len([message for message in caplog.messages if f"never_{definition}" in message]) == 1


def test_an_error_of_the_data_is_logged_once_despite_new_task_numbers(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    view, _ = numbers(pipeline, database)
    query = f"select _row_key, id, 1 div (total - total) as share from {{{{ rows('{view}') }}}}"
    definition = pipeline.definition("shares", query, bucket_by=[], object_id="id", evaluation="incremental")
    run_loop = pipeline.run_loop()
    monkeypatch.setattr(run_loop_module, "MAINTENANCE_RUNS", 4)
    monkeypatch.setattr(run_loop_module, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(log_repeats, "FIRST_SECONDS", 3600.0)  # whatever the duration of the runs
    monkeypatch.setattr(run_loop, "begin_maintenance", run_loop.stop)
    with run_loop.running():
        run_loop.loop()
    messages = [message for message in caplog.messages if definition in message]
    assert len(messages) == 1
    assert "DIVIDE_BY_ZERO" in messages[0]


@pytest.mark.timeout(300)
def test_no_run_waits_for_the_end_of_a_maintenance(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(pipeline, database)
    run_loop = pipeline.run_loop()
    steps = count()
    runs: list[DbtRun] = []

    def insert_until_the_fourth_run(run: DbtRun) -> None:
        runs.append(run)
        database.execute(f"insert into t values ({100 + len(runs)}, 5)")
        if len(runs) == 4:
            run_loop.stop()

    monkeypatch.setattr(run_loop_module, "MAINTENANCE_RUNS", 2)
    monkeypatch.setattr(run_loop_module, "maintenance_steps", lambda *_: ([] for _ in steps))
    with run_loop.running():
        run_loop.loop(insert_until_the_fourth_run)
    assert len(runs) == 4
    assert next(steps) > 1


def loop_that_commits_on_request(pipeline: SourcePipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Without a request, the next batch would be committed in an hour."""
    monkeypatch.setattr(flush_policy, "REQUESTED_SHARE", 0.0)
    hourly = pipeline.settings.settings.model_copy(update={"commit_interval_seconds": 3600.0})
    pipeline.settings = pipeline.settings.model_copy(update={"settings": hourly})
    return pipeline.run_loop()


@pytest.mark.timeout(300)
def test_a_run_includes_events_that_were_read_just_before_it(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, definition = numbers(pipeline, database)
    pipeline.sync()
    run_loop = loop_that_commits_on_request(pipeline, monkeypatch)
    database.execute("insert into t values (77, 5)")
    with run_loop.running():
        while (f"{definition}[]", 77) not in pipeline.bucket(definition, "id"):
            run_loop.model()


@pytest.mark.timeout(300)
def test_commits_that_a_run_has_requested_cause_no_other_run(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under steady load each run would cause the next."""
    _, definition = numbers(pipeline, database)
    pipeline.sync()
    run_loop = loop_that_commits_on_request(pipeline, monkeypatch)
    runs: list[DbtRun] = []
    build, wait, ids = Project.build, run_loop._wait, count(100)

    def commit_and_build(project: Project, **options: Any) -> Any:
        database.execute(f"insert into t values ({next(ids)}, 5)")
        targets = run_loop.jobs.catch_up_targets()

        def is_committed() -> bool:
            run_loop.jobs.request_commit()
            return run_loop.jobs.has_reached(targets)

        wait_until(is_committed)
        return build(project, **options)

    def stop_if_idle(until_caught_up: bool) -> None:
        if runs and not run_loop._has_news.is_set():
            run_loop.stop()
        wait(until_caught_up)

    def stop_after_five(run: DbtRun) -> None:
        runs.append(run)
        if len(runs) == 5:
            run_loop.stop()

    monkeypatch.setattr(Project, "build", commit_and_build)
    monkeypatch.setattr(run_loop, "_wait", stop_if_idle)
    with run_loop.running():
        run_loop.loop(stop_after_five)
    assert len(runs) < 5
    assert len(pipeline.bucket(definition, "id")) > len(runs)


@pytest.mark.parametrize("places", ["storing, publishing", "committing, modelling"])
def test_after_a_sigkill_the_next_run_continues(pipeline: SourcePipeline, database: Database, places: str) -> None:
    database.execute(
        "create table t (id int primary key, v text); insert into t select i, 'a' from generate_series(1, 9) i"
    )
    view = pipeline.view("t", {"id": "int", "v": "string"})
    rows = pipeline.definition(
        "rows",
        f"select _row_key, id, v from {{{{ rows('{view}') }}}}",
        bucket_by=[],
        object_id="id",
        evaluation="incremental",
    )
    pipeline.sync()
    write_sources(pipeline.folder, pipeline.source)
    for i, place in enumerate(places.split(", ")):
        database.execute(f"update t set v = v || 'b' where id < 5; delete from t where id = 5 + {i}")
        database.execute(f"insert into t values (10 + {i}, 'c')")
        victim = run_command(pipeline.folder, sys.executable, "-m", "tests.harness.killed_run", place)
        assert victim.returncode == -signal.SIGKILL, victim.stderr
        database.execute(f"insert into t values (20 + {i}, 'd')")
        pipeline.sync()
        assert sorted(pipeline.bucket(rows, "id, v")) == sorted(database.execute(f"select '{rows}[]', id, v from t"))
        assert pipeline.replayed(rows) == pipeline.logged_rows(rows)


def define_whole_and_broken(pipeline: SourcePipeline, database: Database) -> str:
    """Creates a table of three rows, a definition of it that fails, and a valid one; returns the name of the latter."""
    database.execute("create table t (id int primary key); insert into t select generate_series(1, 3)")
    view = pipeline.view("t", {"id": "int"})
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    query = f"select _row_key, {{}} from {{{{{{{{ rows('{view}') }}}}}}}}"
    pipeline.definition("broken", query.format("no_such_column as id"), **options)
    return pipeline.definition("whole", query.format("id"), **options)


def expect_more_changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The first run comes when more changes seem to follow; returns the counter of questions whether all is read."""
    has_reached, calls = Jobs.has_reached, count()
    monkeypatch.setattr(Jobs, "has_reached", lambda jobs, targets: next(calls) > 1 and has_reached(jobs, targets))
    return calls


def test_the_command_ends_when_all_but_a_broken_definition_is_caught_up(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = define_whole_and_broken(pipeline, database)
    run_loop = pipeline.run_loop()
    maintained = threading.Event()
    monkeypatch.setattr(run_loop, "maintain", maintained.set)
    expect_more_changes(monkeypatch)
    with pytest.raises(Failure, match="no_such_column"), run_loop.running():
        run_loop.loop(until_caught_up=True)
    assert maintained.is_set()
    assert pipeline.bucket(whole, "id") == [(f"{whole}[]", id_) for id_ in (1, 2, 3)]


def test_the_command_after_a_release_runs_although_a_definition_fails(
    pipeline: SourcePipeline, database: Database
) -> None:
    whole = define_whole_and_broken(pipeline, database)
    command = write_count(pipeline, whole)
    with pytest.raises(Failure, match="no_such_column"):
        loop_until_caught_up(pipeline, command)
    assert pipeline.rows(f"select * from marts.count_{whole}") == [(3,)]


def test_a_failed_command_after_a_release_fails_the_loop_that_publishes_nothing_more(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key); insert into t select generate_series(1, 3)")
    query = f"select _row_key, id from {{{{ rows('{pipeline.view('t', {'id': 'int'})}') }}}}"
    whole = pipeline.definition("whole", query, bucket_by=[], object_id="id", evaluation="incremental")
    command = write_count(pipeline, whole, "no_such_column")
    calls = expect_more_changes(monkeypatch)
    with pytest.raises(Failure, match="no_such_column"):
        loop_until_caught_up(pipeline, command)
    assert next(calls) > 2


def write_count(pipeline: SourcePipeline, definition: str, counted: str = "*") -> list[str]:
    """Writes a model that counts the rows of a definition; returns the dbt command that builds it."""
    model = f"count_{definition}"
    config = "{{ config(materialized='table', schema='marts', file_format='iceberg') }}"
    pipeline.write(f"models/{model}.sql", f"{config}select count({counted}) as n from {{{{ ref('{definition}') }}}}")
    return ["run", "--select", model]


def loop_until_caught_up(pipeline: SourcePipeline, then_command: Sequence[str]) -> None:
    run_loop = Pipeline(pipeline.lake, pipeline.settings, pipeline.project, then_command=then_command)
    with run_loop.running():
        run_loop.loop(until_caught_up=True)


def test_a_snapshot_completed_after_its_checkpoint_is_published(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key); insert into t select generate_series(1, 3)")
    view, tables = pipeline.view("t", {"id": "int"}), pipeline.lake.tables
    put, passed = tables.upsert, threading.Event()
    ends: list[int] = []

    def upsert_late(source: str, rows: Sequence[SourceTable]) -> list[SourceTable]:
        done = [row.complete_lsn for row in rows if row.state == DONE and row.complete_lsn is not None]
        if done and not ends:
            ends.extend(done)
            database.execute("insert into t values (4)")  # this causes a run
            assert passed.wait(120)
        return put(source, rows)

    def on_run(_: DbtRun) -> None:
        query = f"select max(position) from core.checkpoints where source = '{pipeline.source.name}'"
        if ends and pipeline.rows(query)[0][0] > ends[0]:
            passed.set()

    monkeypatch.setattr(tables, "upsert", upsert_late)
    run_loop = pipeline.run_loop()
    with run_loop.running():
        run_loop.loop(on_run, until_caught_up=True)
    assert passed.is_set()
    assert pipeline.rows(f"select id from staging.{view}") == [(1,), (2,), (3,), (4,)]
