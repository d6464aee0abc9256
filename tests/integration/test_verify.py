"""`verify`, `resnapshot` and `status` on a running pipeline."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from pydantic import ByteSize

from ingest.commands import status
from ingest.commands.resnapshot import queue_tables, resnapshot_sources
from ingest.commands.verify import TableComparison, verify_source, verify_tables
from ingest.common.errors import Failure, UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Settings
from ingest.lake import Lake
from ingest.lake.source_tables import DONE, QUEUED, SourceTable
from ingest.pipeline import catch_up
from ingest.pipeline.catch_up import ProgressTimeout
from ingest.snapshot.snapshot_source import SnapshotPlan
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.snapshot.postgres_snapshot_source import PostgresTables
from tests.conftest import Database
from tests.harness.pipeline import SourcePipeline
from tests.harness.postgres_jobs import PostgresJobs


@pytest.fixture
def pipeline(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> SourcePipeline:
    database.execute(
        "create table orders (id int primary key, note text);"
        "insert into orders select i, 'n' from generate_series(1, 9) i;"
        "create table pairs (a int, b int); alter table pairs replica identity full;"
        "insert into pairs values (1, 1), (1, 1), (2, null)"
    )
    return SourcePipeline(lake, source, settings, tmp_path)


def verify_with_stream(pipeline: SourcePipeline, *tables: str) -> dict[str, TableComparison]:
    """With a running stream, as the source's log advances by itself."""
    with PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings).streaming():
        return {v.table: v for v in verify_tables(pipeline.lake, pipeline.settings, 15, tables)}


def test_verify_skips_a_table_without_select_permission(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, database: Database, role: str
) -> None:
    """Although a snapshot of it is queued, as its columns have changed."""
    database.execute("create table orders (id int primary key, n int); create table other (id int primary key)")
    database.execute(f"create publication given for table orders, other; alter role {role} replication")
    database.execute(f"grant select on orders, other to {role}")
    source = new_source(dsn=psycopg.conninfo.make_conninfo(database.dsn, user=role), publication="given")
    jobs = PostgresJobs(lake, source, settings)
    jobs.settle()
    database.execute(f"revoke select on orders from {role}; alter table orders rename n to m")
    database.execute("insert into orders values (1, 7)")
    jobs.settle()
    assert jobs.table("public.orders").state == QUEUED
    tables = PostgresTables(lake, source, settings)
    with pytest.raises(Failure, match="no progress"):
        list(verify_source(lake, tables, source, ProgressTimeout(1.0)))
    with pytest.raises(Failure, match="the table can't be compared: .*public.orders"):
        list(verify_source(lake, tables, source, ProgressTimeout(1.0), ["public.orders"]))
    tables.close()
    jobs.close()


def test_verify_compares_row_by_row_and_reports_differences(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    assert verify_with_stream(pipeline) == {
        "public.orders": TableComparison(pipeline.source.name, "public.orders", 9, 0, 0, 0, 0, ()),
        "public.pairs": TableComparison(pipeline.source.name, "public.pairs", 2, 0, 0, 0, 0, ()),
    }
    of_source = f"source = '{pipeline.source.name}' and table_name"
    pipeline.spark.sql(f"""delete from core.row_state where {of_source} = 'public.orders' and row_key = '["1"]'""")
    pipeline.spark.sql(
        f"""update core.row_state set columns = map('id', '2', 'note', 'other')
        where {of_source} = 'public.orders' and row_key = '["2"]'"""
    )
    pipeline.spark.sql(
        f"""update core.row_state set row_key = '["30"]' where {of_source} = 'public.orders' and row_key = '["3"]'"""
    )
    pipeline.spark.sql(
        f"update core.row_state set multiplicity = 1 where {of_source} = 'public.pairs' and multiplicity = 2"
    )
    assert str(verify_with_stream(pipeline, "public.orders")["public.orders"]).endswith(
        "DIFFERS: 2 rows only in the source, 1 only in the lake, 1 with different values, of 10; "
        """such as ["1"], ["30"]"""
    )
    assert verify_with_stream(pipeline)["public.pairs"].different == 1


def test_verify_fails_if_an_open_transaction_delays_the_read(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    with (
        psycopg.connect(database.dsn) as other,
        PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings).streaming(),
    ):
        other.execute("create table not_committed (id int)")
        with pytest.raises(Failure, match="open transactions have delayed the read for 2 s"):
            list(verify_tables(pipeline.lake, pipeline.settings, 2))


def test_verify_excludes_later_changes_and_waits_for_the_models(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    database.execute("update orders set note = 'newer' where id = 1")
    with pytest.raises(Failure, match="no run of the models has staged anything"):
        verify_with_stream(pipeline, "public.orders")
    pipeline.sync()
    assert verify_with_stream(pipeline, "public.orders")["public.orders"].is_equal
    assert not list(Path(pipeline.lake.folder("raw.snapshot_rows").root).glob("**/verify-*"))


def test_verify_counts_rows_that_changed_and_changed_back(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the read of the source and a run of the models that also admits a snapshot of another table."""
    database.execute("create table gone (id int primary key)")
    pipeline.sync()
    database.execute("insert into gone values (1), (2); update orders set note = 'read so' where id = 1")
    with ExitStack() as stack:
        tables = PostgresTables(pipeline.lake, pipeline.source, pipeline.settings.settings)
        stack.callback(tables.close)
        emit_marker = tables.emit_marker
        streaming = stack.enter_context(ExitStack())
        streaming.enter_context(PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings).streaming())

        def change_and_emit_marker() -> int:
            """The second call, when the source is read."""
            streaming.close()
            database.execute("truncate gone; update orders set note = 'n' where id = 1")
            database.execute("create table newer (id int primary key); insert into newer values (1)")
            pipeline.sync()
            jobs = PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings)
            stack.enter_context(jobs.streaming())
            return emit_marker()

        def emit_first_marker() -> int:
            """The first call, to check that the stream advances."""
            monkeypatch.setattr(tables, "emit_marker", change_and_emit_marker)
            return emit_marker()

        monkeypatch.setattr(tables, "emit_marker", emit_first_marker)
        comparisons = {v.table: v for v in verify_source(pipeline.lake, tables, pipeline.source, ProgressTimeout(60))}
    assert {table: (v.is_equal, v.rows, v.changed) for table, v in comparisons.items()} == {
        "public.gone": (True, 0, 2),
        "public.orders": (True, 8, 1),
        "public.pairs": (True, 2, 0),
    }
    where = f"source = '{pipeline.source.name}' and row_key = '[\"1\"]' and table_name = 'public.orders'"
    places = [f"select max(commit_lsn) from core.{table} where {where}" for table in ("row_state", "events")]
    assert pipeline.spark.sql(places[0]).collect() == pipeline.spark.sql(places[1]).collect()


def fake_time(monkeypatch: pytest.MonkeyPatch, steps: Iterator[Callable[[], object]]) -> None:
    """Between two polls of the waiting command 50 s pass, and the next of `steps` is run."""
    passed = 0.0

    def sleep(_: float) -> None:
        nonlocal passed
        passed += 50
        next(steps, lambda: None)()

    monkeypatch.setattr(catch_up, "time", SimpleNamespace(monotonic=lambda: passed, sleep=sleep))


def test_verify_waits_while_runs_progress_and_reports_a_stalled_run(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pipeline.sync()
    read: list[str] = []
    name, jobs = pipeline.source.name, PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings)

    def planned(plan: Callable[..., list[SnapshotPlan]], queued: Sequence[SourceTable]) -> list[SnapshotPlan]:
        read.extend(table.table_name for table in queued)
        return plan(queued)

    def verdicts(*steps: Callable[[], object]) -> bool:
        fake_time(monkeypatch, iter(steps))
        tables = PostgresTables(pipeline.lake, pipeline.source, pipeline.settings.settings)
        with ExitStack() as stack:
            stack.callback(tables.close)
            monkeypatch.setattr(tables, "plan", partial(planned, tables.plan))
            comparisons = verify_source(pipeline.lake, tables, pipeline.source, ProgressTimeout(60), ["public.orders"])
            return all(verdict.is_equal for verdict in comparisons)

    # No stream: no table is read, and nothing is held at the source.
    with pytest.raises(Failure, match=rf"no progress for 100 s.*: source {name}, writer 1\. Run `tidemark run`"):
        verdicts()
    assert read == []
    assert "waiting, as the stream is at" in caplog.text

    # No run, but the stream continues.
    database.execute("update orders set note = 'm' where id = 1")
    match = r"no run of the models has staged anything: source .*, model row_state\. Run `tidemark run`"
    with pytest.raises(Failure, match=match):
        verdicts(jobs.stream, jobs.stream)

    catalog = pipeline.spark.catalog.currentCatalog()

    # A run that takes 200 s and stages a table now and then.
    def create_branch(table: str, run: str = "run_slow") -> Callable[[], object]:
        return lambda: pipeline.spark.sql(f"alter table {catalog}.{table} create branch {run}")

    def drop_branch(table: str, run: str) -> Callable[[], object]:
        return lambda: pipeline.spark.sql(f"alter table {catalog}.{table} drop branch {run}")

    database.execute("update orders set note = 'o' where id = 2")
    slow = [
        create_branch("core.checkpoints"),
        create_branch("core.events"),
        create_branch("core.table_status"),
        create_branch("core.row_state"),
    ]
    assert verdicts(jobs.stream, jobs.stream, *slow, pipeline.model)
    assert "a run of the models has staged core.checkpoints, core.events" in caplog.text

    # A run that fails again and again.
    database.execute("update orders set note = 'p' where id = 3")
    failing = [step("core.events", f"run_{n}") for n in range(9) for step in (create_branch, drop_branch)]
    with pytest.raises(Failure, match=r"the runs of the models fail to publish.*See the log of `tidemark run`"):
        verdicts(jobs.stream, jobs.stream, *failing)


def test_verify_waits_for_a_snapshot_that_is_not_modelled_yet(
    pipeline: SourcePipeline, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.sync()
    database.execute("create table newer (id int primary key); insert into newer select generate_series(1, 5)")
    pipeline.ingest()
    with pytest.raises(Failure, match="no run of the models has staged anything"):
        verify_with_stream(pipeline)
    pipeline.model()
    database.execute(f'alter publication "{pipeline.source.publication}" drop table orders; delete from orders')
    assert {table: verdict.is_equal for table, verdict in verify_with_stream(pipeline).items()} == {
        "public.newer": True,
        "public.pairs": True,
    }
    assert "public.orders is not compared: it is not in publication" in caplog.text


def test_a_snapshot_is_requested_by_table_name(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    with pytest.raises(UsageError, match=r"no table 'public.order' is replicated.*Did you mean public.orders\?"):
        queue_tables(pipeline.lake, pipeline.settings, ["public.pairs", "public.order"])
    assert queue_tables(pipeline.lake, pipeline.settings, ["public.orders"]) == [
        f"{pipeline.source.name}: public.orders is queued"
    ]
    states = {t.table_name: t.state for t in pipeline.lake.tables.read(pipeline.source.name).values()}
    assert states == {"public.orders": QUEUED, "public.pairs": DONE}
    with pytest.raises(Failure, match=r"snapshots are not complete: public.orders"):
        verify_with_stream(pipeline)
    pipeline.sync()
    assert all(verdict.is_equal for verdict in verify_with_stream(pipeline).values())


def test_resnapshot_all_is_refused_while_a_stream_runs(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.sync()
    jobs = PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings)
    with jobs.streaming(), monkeypatch.context() as impatient:
        database.awaited("select from pg_replication_slots where active and slot_name = %s", [pipeline.source.slot])
        impatient.setattr(replication_slots, "RELEASE_SECONDS", 0.5)
        with pytest.raises(Failure, match="the replication slot is in use by process"):
            list(resnapshot_sources(pipeline.lake, pipeline.settings))
    assert {t.state for t in pipeline.lake.tables.read(pipeline.source.name).values()} == {DONE}
    database.drop_slot(pipeline.source.slot)
    database.execute("delete from orders where id = 1")  # in no log that is left
    with pytest.raises(Failure, match="resnapshot --all"):
        pipeline.ingest()
    assert len(list(resnapshot_sources(pipeline.lake, pipeline.settings))) == 2
    pipeline.sync()
    assert all(verdict.is_equal for verdict in verify_with_stream(pipeline).values())
    assert verify_with_stream(pipeline)["public.orders"].rows == 8


def test_resnapshot_all_works_as_soon_as_a_stream_has_ended(
    pipeline: SourcePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pipeline.sync()
    with ThreadPoolExecutor(1) as pool:
        with PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings).streaming():
            resnapshot = pool.submit(lambda: list(resnapshot_sources(pipeline.lake, pipeline.settings)))
            while "waiting up to" not in caplog.text and not resnapshot.done():
                time.sleep(0.05)
        assert len(resnapshot.result(60)) == 2
    pipeline.sync()
    assert all(verdict.is_equal for verdict in verify_with_stream(pipeline).values())


def test_status_warns_of_retained_wal_and_of_a_lost_slot(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()

    def problem() -> str:
        strict = pipeline.settings.settings.model_copy(update={"wal_retention_warning_bytes": ByteSize(1 << 20)})
        (source_status,) = status.read_status(
            pipeline.lake, Settings(sources=pipeline.settings.sources, settings=strict)
        ).sources
        return source_status.problem

    assert problem() == ""
    database.execute("select pg_logical_emit_message(false, '', repeat('x', 1 << 20)) from generate_series(1, 3)")
    assert "of log for a slot, above wal_retention_warning_bytes (1.0MiB)" in problem()
    database.drop_slot(pipeline.source.slot)
    assert "the replication slot does not exist" in problem()
