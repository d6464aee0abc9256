"""A source that fails does not affect the others; `status` and the exit code show the failure."""

import logging
import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from ingest.cli.main import cli
from ingest.commands.status import read_status
from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, PostgresSource, Settings
from ingest.lake import Lake
from ingest.pipeline import supervisor
from ingest.pipeline.ingest_jobs import Jobs as AllJobs
from ingest.pipeline.run_loop import DbtRun
from tests.conftest import Database
from tests.harness.pipeline import SourcePipeline
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.project_copy import ROOT
from tests.harness.waiting import wait_until

NewSource = Callable[..., PostgresSource]


def test_a_source_that_fails_does_not_stop_the_others(
    lake: Lake,
    new_source: NewSource,
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    good, broken = new_source(), new_source()
    uri = SecretStr("mongodb://localhost:1/?replicaSet=rs0")
    unreachable = MongoSource(name=f"away_{good.name}", uri=uri, collections=("shop.*",))
    database.execute("select pg_create_logical_replication_slot(%s, 'test_decoding')", [broken.slot])
    pipeline = SourcePipeline(
        lake, good, settings.model_copy(update={"connect_timeout_seconds": 1.0}), tmp_path, broken, unreachable
    )
    view = pipeline.view("t", {"id": "int"})
    query = f"select _row_key, id from {{{{ rows('{view}') }}}}"
    definition = pipeline.definition("rows", query, bucket_by=[], object_id="id", evaluation="incremental")
    run_loop = pipeline.run_loop()
    repaired: list[bool] = []

    def on_run(run: DbtRun) -> None:
        failed = lake.sources.read_error(broken.name)
        if run.changes and not repaired:  # published, although two of three sources fail
            assert failed is not None
            assert "uses test_decoding, not pgoutput" in failed[0]
            problems = {source.name: source.problem for source in read_status(lake, pipeline.settings).sources}
            assert "uses test_decoding, not pgoutput" in problems[broken.name]
            assert "no primary of a replica set answers" in problems[unreachable.name]
            database.execute("select pg_drop_replication_slot(%s)", [broken.slot])
            repaired.append(True)
        if repaired and failed is None and lake.persisted_position(broken.name) is not None:
            run_loop.stop()  # recovered without a restart
        database.execute("insert into t select max(id) + 1 from t")

    monkeypatch.setattr(supervisor, "MANUAL_ACTION_SECONDS", 0.5)
    with pytest.raises(Failure, match="no primary of a replica set answers"), run_loop.running():
        run_loop.loop(on_run)
    assert repaired
    assert len(pipeline.rows(f"select id from buckets.{definition}")) > 1


def test_the_command_ends_with_the_error_of_a_source(
    lake: Lake, new_source: NewSource, settings: JobSettings, database: Database
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    good, broken = new_source(), new_source()
    database.execute("select pg_create_logical_replication_slot(%s, 'test_decoding')", [broken.slot])
    both = AllJobs(
        lake, Settings(sources={each_source.name: each_source for each_source in (broken, good)}, settings=settings)
    )
    with pytest.raises(Failure, match=f"not pgoutput: source {broken.name}"), both.running():
        both.wait(until_caught_up=True)
    PostgresJobs(lake, good, settings).assert_equal("public.t")
    # A single failed source ends the command at once.
    failed_only = AllJobs(lake, Settings(sources={broken.name: broken}, settings=settings))
    with pytest.raises(Failure, match="not pgoutput"), failed_only.running():
        failed_only.wait()


def test_the_advice_after_a_lost_slot_works_while_other_sources_run(
    lake: Lake,
    new_source: NewSource,
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    good, lost = new_source(), new_source()
    for each_source in (good, lost):
        PostgresJobs(lake, each_source, settings).settle()
    database.drop_slot(lost.slot)
    database.execute("insert into t values (2)")
    read_once = lake.tables.read(good.name)
    sources = {
        each_source.name: {"postgres": {**each_source.model_dump(mode="json"), "dsn": database.dsn}}
        for each_source in (good, lost)
    }
    for entry in sources.values():
        del entry["postgres"]["name"]
    (tmp_path / "sources.yml").write_text(yaml.safe_dump({"sources": sources}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_PROFILES_DIR", str(ROOT / "profiles"))
    monkeypatch.setattr(supervisor, "MANUAL_ACTION_SECONDS", 0.5)
    jobs = AllJobs(
        lake, Settings(sources={each_source.name: each_source for each_source in (good, lost)}, settings=settings)
    )
    with jobs.running():
        wait_until(lambda: lake.sources.read_error(lost.name) is not None)
        failure, _ = lake.sources.read_error(lost.name) or ("", None)
        (command,) = re.findall("`tidemark (.*?)`", failure.partition(" (")[0])
        done = CliRunner().invoke(cli, shlex.split(command))
        assert done.exit_code == 0, done.output
        wait_until(lambda: lake.sources.read_error(lost.name) is None)
        jobs.wait(until_caught_up=True)
    for each_source in (good, lost):
        PostgresJobs(lake, each_source, settings).assert_equal("public.t")
    assert lake.tables.read(good.name) == read_once


def test_the_cause_of_a_waiting_snapshot_is_reported_after_the_timeout(
    lake: Lake, source: PostgresSource, settings: JobSettings, database: Database
) -> None:
    database.execute("create table t (id int primary key)")
    sources = Settings(sources={source.name: source}, settings=settings)
    jobs = AllJobs(lake, sources)
    with database.connect(autocommit=False) as writer:
        writer.execute("insert into t values (1)")
        pid = writer.info.backend_pid
        named = rf"not caught up before the timeout: source {source.name}: .* open transactions: pid {pid} of"
        with pytest.raises(Failure, match=named), jobs.running(timeout=2):
            jobs.wait(until_caught_up=True)
        writer.commit()
    with AllJobs(lake, sources).running() as again:
        again.wait(until_caught_up=True)
    PostgresJobs(lake, source, settings).assert_equal("public.t")


def test_a_silent_server_is_reported(
    lake: Lake, new_source: NewSource, settings: JobSettings, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("create table t (id int primary key)")
    source = new_source(dsn=make_conninfo(database.dsn, options="-c wal_sender_timeout=2s"))
    jobs = PostgresJobs(lake, source, settings)
    jobs.settle()
    with caplog.at_level(logging.INFO), jobs.streaming():
        active = "select active_pid from pg_replication_slots where slot_name = %s and active"
        database.awaited(active, [source.slot])
        ((walsender,),) = database.execute(active, [source.slot])
        os.kill(walsender, signal.SIGSTOP)
        try:
            wait_for_log(caplog, "the server has sent nothing for 2 s")
        finally:
            os.kill(walsender, signal.SIGCONT)
        wait_for_log(caplog, "the server sends again")
        database.execute("insert into t values (1)")
    jobs.settle()
    jobs.assert_equal("public.t")


def test_a_command_with_a_timeout_ends_without_an_answer(
    lake: Lake,
    new_source: NewSource,
    settings: JobSettings,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    source = new_source(dsn=make_conninfo(database.dsn, options="-c wal_sender_timeout=2s"))
    often = settings.model_copy(update={"catalog_poll_seconds": 0.05})
    jobs = AllJobs(lake, Settings(sources={source.name: source}, settings=often))
    monkeypatch.setattr("ingest.pipeline.ingest_jobs.END_SECONDS", 1.0)
    backends = "select pid from pg_stat_activity where application_name = 'tidemark' and datname = current_database()"
    frozen: list[int] = []
    try:
        with caplog.at_level(logging.INFO), jobs.running(timeout=600):
            jobs.wait(until_caught_up=True)
            frozen += [pid for (pid,) in database.execute(backends)]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            wait_for_log(caplog, "the server has sent nothing for 2 s")
        assert "its jobs wait for the server and do not end" in caplog.text
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert all(supervisor.join(120) for supervisor in jobs._supervisors)  # else the slot stays in use
    database.execute("insert into t values (2)")
    again = PostgresJobs(lake, source, settings)
    again.settle()
    again.assert_equal("public.t")


def wait_for_log(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Waits until a message with `text` is logged."""
    wait_until(lambda: text in caplog.text)
