"""Several stream writers of one source: their tables, what becomes visible when, and how their number changes."""

import contextlib
import json
import random
import re
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ingest.cli.main import cli
from ingest.commands import status, tail
from ingest.common.errors import Failure, UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Settings
from ingest.lake import Lake
from ingest.lake.source_states import SourceStates
from ingest.lake.source_tables import QUEUED, RUNNING
from ingest.positions.position import current_epochs
from ingest.positions.position_token import Token
from ingest.snapshot.snapshotter import SnapshotHooks
from ingest.sources.postgres.catalog import publications
from ingest.sources.postgres.postgres_connection import connect
from ingest.sources.postgres.postgres_source import open_jobs
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.writers import postgres_writers, writer_count
from ingest.sources.postgres.writers.writer_count import set_writers
from ingest.sources.postgres.writers.writer_reset import start_over_writers
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.stream_writer import StreamWriter
from tests.conftest import Database
from tests.harness.commands import write_sources
from tests.harness.kill_points import Killed, call_once, kill
from tests.harness.pgbench import pgbench, pgbench_tables
from tests.harness.pipeline import SourcePipeline
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.project_copy import ROOT

TABLES = ("public.a", "public.b", "public.c")


@pytest.fixture
def tables(database: Database) -> Database:
    for name in "abc":
        database.execute(f"create table {name} (id int primary key, v int); insert into {name} values (1, 0), (2, 0)")
    return database


@pytest.fixture
def jobs(lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings) -> Iterator[PostgresJobs]:
    found = PostgresJobs(lake, new_source(writers=2), settings)
    yield found
    found.close()


def stream(jobs: PostgresJobs, *, only: int | None = None) -> None:
    """What is committed by now, one writer after the other."""
    opened = open_jobs(jobs.lake, jobs.source, jobs.settings)
    target = opened.emit_marker()
    for one in opened.streams:
        if only in (None, one.position.writer):
            opened.writer(one, CommitHooks(), None).run(until=target)
    opened.release_resources()


def settle(jobs: PostgresJobs, *, writers: int | None = None) -> None:
    """Snapshots too; with another number of writers from now on, before the first start."""
    if writers is not None:
        jobs.source = jobs.source.model_copy(update={"writers": writers})
    stream(jobs)
    jobs.snapshot()
    stream(jobs)


def change_writers(jobs: PostgresJobs, writers: int) -> None:
    """What `tidemark set-writers` does after sources.yml was edited."""
    jobs.source = jobs.source.model_copy(update={"writers": writers})
    set_writers(jobs.lake, jobs.source, jobs.settings)


def owners(jobs: PostgresJobs) -> dict[str, int]:
    """The writer of each table, by the publications; the lake says the same."""
    names = {writer: jobs.source.publication_of(writer) for writer in range(1, 5)}
    with connect(jobs.source.dsn.get_secret_value()) as connection:
        found = {member.table_name: member.writer for member in publications.read_members(connection, names)}
    assert {name: jobs.table(name).writer for name in found} == found
    return found


def changes(jobs: PostgresJobs) -> list[tuple[str, str, str | None]]:
    """(table, key, v) of what is committed, in the order of the log, as the models read it."""
    end = jobs.lake.persisted_position(jobs.source.name) or 0
    events = [event for event in jobs.events() if event["commit_lsn"] < end]
    places = [(event["change_lsn"], event["table_name"], event["row_key"]) for event in events]
    assert len(set(places)) == len(places), "two writers committed one change"
    return [(e["table_name"], e["row_key"], e["columns"].get("v")) for e in events]


def slots(database: Database) -> set[str]:
    return {row[0] for row in database.execute("select slot_name from pg_replication_slots where not temporary")}


def test_a_transaction_over_two_writers_is_visible_when_both_stored_it(
    jobs: PostgresJobs, tables: Database, tmp_path: Path
) -> None:
    settle(jobs)
    assert owners(jobs) == {"public.a": 1, "public.b": 1, "public.c": 2}
    pipeline = SourcePipeline(jobs.lake, jobs.source, jobs.settings, tmp_path)
    pipeline.model()
    seen = (
        f"select table_name, max(int(columns['v'])) from core.row_state where source = '{jobs.source.name}' group by 1"
    )
    with tables.connect(autocommit=False) as connection:
        for name in ("a", "c", "b", "c"):
            connection.execute(f"update {name} set v = v + 1 where id = 1".encode())
    stream(jobs, only=1)
    pipeline.model()
    assert pipeline.rows(seen) == [("public.a", 0), ("public.b", 0), ("public.c", 0)]
    stream(jobs, only=2)
    pipeline.model()
    assert pipeline.rows(seen) == [("public.a", 1), ("public.b", 1), ("public.c", 2)]
    log = f"select seq, writer, table_name from core.events where source = '{jobs.source.name}'"
    assert [row[1:] for row in pipeline.rows(log)] == [
        (1, "public.a"),
        (2, "public.c"),
        (1, "public.b"),
        (2, "public.c"),
    ]
    jobs.assert_equal(*TABLES)


def write(database: Database, value: int) -> list[tuple[str, str, str | None]]:
    """Changes a row of each table; gives what is then in the lake."""
    for name in "cab":
        database.execute(f"update {name} set v = {value} where id = 1")
    return [(f"public.{name}", '["1"]', str(value)) for name in "cab"]


def test_more_and_fewer_writers_cause_no_loss_or_duplicates(jobs: PostgresJobs, tables: Database) -> None:
    settle(jobs, writers=1)
    snapshots = {name: jobs.table(name).snapshot_id for name in TABLES}
    expected = []
    for step, writers in enumerate([3, 3, 1, 2], start=1):
        expected += write(tables, step)
        change_writers(jobs, writers)
        expected += write(tables, 10 * step)
        assert (
            set(owners(jobs).values())
            == set(range(1, writers + 1))
            == jobs.lake.sources.read_active_writers(jobs.source.name)
        )
        assert slots(tables) == {jobs.source.slot_of(writer) for writer in range(1, writers + 1)}
        stream(jobs)
    assert changes(jobs) == expected
    jobs.snapshotter().run(until_done=True)
    assert {name: jobs.table(name).snapshot_id for name in TABLES} == snapshots
    jobs.assert_equal(*TABLES)


# Where it is killed: the function that is not reached, or not left; and from and to how many writers.
KILLED_AT = [
    ("number stored", "before", publications, "create_empty", 1, 3),
    ("slot made", "before", postgres_writers, "store_first_position", 1, 3),
    ("position stored", "after", postgres_writers, "store_first_position", 1, 3),
    ("writer active", "before", writer_count, "_move_tables", 1, 3),
    ("locked", "before", writer_count, "_store_move", 1, 3),
    ("all moved", "after", writer_count, "_move_tables", 3, 1),
    ("committed", "before", postgres_writers, "drop_removed_writers", 3, 1),
]


@pytest.mark.parametrize("kill_point", [pytest.param(rest, id=step) for step, *rest in KILLED_AT])
def test_set_writers_can_be_killed_at_any_step(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch, kill_point: list[Any]
) -> None:
    change_and_kill(jobs, tables, monkeypatch, *kill_point)


def test_a_killed_set_writers_is_completed_by_running_it_again(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_and_kill(jobs, tables, monkeypatch, "after", writer_count, "_move_table", 3, 1)


def change_and_kill(
    jobs: PostgresJobs,
    tables: Database,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    module: Any,
    name: str,
    before: int,
    after: int,
) -> None:
    settle(jobs, writers=before)
    snapshots = {table: jobs.table(table).snapshot_id for table in TABLES}
    expected = write(tables, 1)
    work = getattr(module, name)

    def dies(*arguments: Any, **named: Any) -> None:
        if when == "after":
            work(*arguments, **named)
        raise Killed

    monkeypatch.setattr(module, name, dies)
    with pytest.raises(Killed):
        change_writers(jobs, after)
    monkeypatch.undo()
    expected += write(tables, 2)
    if name != "drop_removed_writers":
        with pytest.raises(Failure, match=f"the change to {after} writers is not complete.*tidemark set-writers"):
            open_jobs(jobs.lake, jobs.source, jobs.settings)
        change_writers(jobs, after)
    expected += write(tables, 3)
    stream(jobs)
    assert (
        set(owners(jobs).values())
        == set(range(1, after + 1))
        == jobs.lake.sources.read_active_writers(jobs.source.name)
    )
    assert slots(tables) == {jobs.source.slot_of(writer) for writer in range(1, after + 1)}
    assert changes(jobs) == expected
    assert {table: jobs.table(table).snapshot_id for table in TABLES} == snapshots
    jobs.assert_equal(*TABLES)


def test_a_table_with_an_uncommitted_move_gets_a_new_snapshot(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(jobs)
    expected = write(tables, 1)
    store = writer_count._store_move

    def dies(*arguments: Any) -> None:
        store(*arguments)
        raise Killed

    monkeypatch.setattr(writer_count, "_store_move", dies)
    with pytest.raises(Killed):
        change_writers(jobs, 1)
    monkeypatch.undo()
    expected += write(tables, 2)
    change_writers(jobs, 1)
    expected += write(tables, 3)
    stream(jobs)
    assert jobs.table("public.c").state == QUEUED
    settle(jobs)
    assert changes(jobs) == expected
    jobs.assert_equal(*TABLES)


def test_a_removed_writer_continues_after_a_kill(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(jobs)
    expected = write(tables, 1)
    monkeypatch.setattr(writer_count, "StreamWriter", partial(StreamWriter, hooks=CommitHooks(before_store=kill)))
    with pytest.raises(Killed):
        change_writers(jobs, 1)
    monkeypatch.undo()
    assert jobs.lake.sources.read_active_writers(jobs.source.name) == {1, 2}
    expected += write(tables, 2)
    change_writers(jobs, 1)
    stream(jobs)
    assert changes(jobs) == expected
    jobs.assert_equal(*TABLES)


def test_set_writers_is_refused_while_a_stream_runs(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Then the streams are refused until the command that the message names was run."""
    settle(jobs)
    before = owners(jobs)
    monkeypatch.setattr(replication_slots, "RELEASE_SECONDS", 0.5)
    with jobs.streaming():
        tables.awaited("select from pg_replication_slots where slot_name = %s and active", [jobs.source.slot])
        with pytest.raises(Failure, match="slot is in use by process .* Stop the stream that reads it"):
            change_writers(jobs, 3)
    assert jobs.lake.sources.read_writers(jobs.source.name).next_writers is None
    assert owners(jobs) == before
    with pytest.raises(Failure, match=r"writers: 3, but the lake has 2.*, or configure `writers: 2`") as refused:
        open_jobs(jobs.lake, jobs.source, jobs.settings)
    command, _ = re.findall("`(?:tidemark )?(.*?)`", str(refused.value))
    write_sources(tmp_path, jobs.source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_PROFILES_DIR", str(ROOT / "profiles"))
    done = CliRunner().invoke(cli, shlex.split(command))
    assert (done.exit_code, done.stdout) == (0, f"{jobs.source.name}: writers: 3\n"), done.output
    stream(jobs)
    assert set(owners(jobs).values()) == {1, 2, 3}


def test_a_table_moves_after_its_open_transactions_have_ended(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_count, "RETRY_SECONDS", 0.1)
    settle(jobs, writers=3)
    assert owners(jobs) == {"public.a": 1, "public.b": 3, "public.c": 2}
    with ThreadPoolExecutor() as pool, tables.connect(autocommit=False) as connection:
        connection.execute("update c set v = 1 where id = 1")
        changed = pool.submit(change_writers, jobs, 1)
        while "waits for open transactions on public.c" not in caplog.text:
            assert not changed.done()
            time.sleep(0.1)
        connection.execute("update b set v = 1 where id = 1")
        connection.execute("update c set v = 2 where id = 1")
        connection.commit()
        changed.result()
    stream(jobs)
    assert {(event["table_name"], event["writer"]) for event in jobs.events()} == {("public.b", 1), ("public.c", 2)}
    assert changes(jobs) == [("public.c", '["1"]', "1"), ("public.b", '["1"]', "1"), ("public.c", '["1"]', "2")]
    jobs.assert_equal(*TABLES)


def test_a_table_moves_during_its_snapshot(jobs: PostgresJobs, tables: Database) -> None:
    """Its events are the old writer's to the moment of the move, then the new one's; its snapshot goes on."""
    jobs.source = jobs.source.model_copy(update={"writers": 1})
    stream(jobs)
    began: list[str | None] = []

    def move() -> None:
        began.append(jobs.table("public.c").snapshot_id)
        tables.execute("update c set v = 1; delete from c where id = 2")
        change_writers(jobs, 2)
        tables.execute("insert into c values (3, 3)")

    jobs.snapshot(SnapshotHooks(after_claim=call_once(move)))
    stream(jobs)
    assert owners(jobs)["public.c"] == 2
    assert jobs.table("public.c").snapshot_id == began[0]
    jobs.assert_equal(*TABLES)


def test_a_slot_lost_during_set_writers_requires_all_new_snapshots(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which tables the lost writer had to read is not known then."""
    settle(jobs)
    write(tables, 1)
    monkeypatch.setattr(writer_count, "_check_empty", kill_if_moved(jobs))
    with pytest.raises(Killed):
        change_writers(jobs, 1)
    monkeypatch.undo()
    tables.drop_slot(jobs.source.slot_of(2))
    with pytest.raises(Failure, match="not complete"):
        start_over_writers(jobs.lake, jobs.source, jobs.settings, [2])
    with pytest.raises(Failure, match="slot does not exist.*resnapshot --all"):
        change_writers(jobs, 1)
    jobs.resnapshot()
    settle(jobs)
    assert jobs.lake.sources.read_active_writers(jobs.source.name) == {1}
    jobs.assert_equal(*TABLES)


def kill_if_moved(jobs: PostgresJobs) -> Callable[..., None]:
    def work(*_: object) -> None:
        if owners(jobs)["public.c"] == 1:
            raise Killed

    return work


def test_set_writers_refuses_tables_that_it_can_not_move(jobs: PostgresJobs, tables: Database) -> None:
    settle(jobs)
    publication = f'publication "{jobs.source.publication_of(2)}"'
    comment = tables.execute("select obj_description(oid) from pg_publication limit 1")[0][0]
    tables.execute(f"comment on {publication} is null")
    with pytest.raises(Failure, match="writer 2 can't be removed: its publication has tables"):
        change_writers(jobs, 1)
    tables.execute(f"comment on {publication} is '{comment}'; alter {publication} add table a")
    with pytest.raises(Failure, match="it is in several publications: .*public.a"):
        change_writers(jobs, 1)
    tables.execute(f"alter {publication} drop table a")
    begun = jobs.table("public.a").with_changes(state=RUNNING)
    assert jobs.lake.tables.upsert(jobs.source.name, [begun])
    jobs.source = jobs.source.model_copy(update={"soft_deletes": False})
    with pytest.raises(Failure, match="the snapshot of public.a is not complete"):
        change_writers(jobs, 1)
    assert jobs.lake.sources.read_writers(jobs.source.name).next_writers is None
    assert owners(jobs) == {"public.a": 1, "public.b": 1, "public.c": 2}


def test_a_table_move_that_times_out_is_rolled_back(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(jobs, writers=1)
    store = writer_count._store_move

    def stopped(*arguments: Any) -> None:
        held = "select 1 from pg_stat_activity where state = 'idle in transaction' and datname = current_database()"
        while tables.execute(held):
            time.sleep(0.02)
        store(*arguments)

    monkeypatch.setattr(writer_count, "HOLD_TIMEOUT", "100ms")
    monkeypatch.setattr(writer_count, "_store_move", stopped)
    with pytest.raises(Failure, match="connection to Postgres was lost.*set-writers .* again"):
        change_writers(jobs, 2)
    assert {table.writer for table in jobs.lake.tables.read(jobs.source.name).values()} == {1, 2}
    monkeypatch.undo()
    change_writers(jobs, 2)
    settle(jobs)
    assert set(owners(jobs).values()) == {1, 2}
    jobs.assert_equal(*TABLES)


def test_a_new_table_goes_to_its_assigned_writer_and_stays(
    jobs: PostgresJobs, tables: Database, caplog: pytest.LogCaptureFixture
) -> None:
    settle(jobs)
    left_over = jobs.source.slot_of(7)
    tables.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [left_over])
    tables.execute("create table r (id int primary key, v int); insert into r values (1, 1)")
    jobs.snapshot()
    stream(jobs)
    assert f"SELECT pg_drop_replication_slot('{left_over}')" in caplog.text
    assert owners(jobs) == {"public.a": 1, "public.b": 1, "public.c": 2, "public.r": 2}
    tables.execute("drop table c; drop table b")
    jobs.snapshot()
    stream(jobs)
    assert owners(jobs) == {"public.a": 1, "public.r": 2}
    jobs.assert_equal("public.r")


def test_a_killed_first_start_is_repeated(
    jobs: PostgresJobs, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, set_active = postgres_writers.store_first_position, SourceStates.set_active_writers

    def dies(self: SourceStates, source: str, writers: Collection[int]) -> None:
        if writers:
            raise Killed
        set_active(self, source, writers)

    monkeypatch.setattr(postgres_writers, "store_first_position", lambda *a: kill(a) if a[3] == 2 else store(*a))
    with pytest.raises(Killed):
        open_jobs(jobs.lake, jobs.source, jobs.settings)
    monkeypatch.undo()
    assert jobs.lake.sources.read_active_writers(jobs.source.name) == set()
    monkeypatch.setattr(SourceStates, "set_active_writers", dies)
    with pytest.raises(Killed):
        open_jobs(jobs.lake, jobs.source, jobs.settings)
    monkeypatch.undo()
    settle(jobs, writers=1)
    assert jobs.lake.sources.read_active_writers(jobs.source.name) == {1}
    assert slots(tables) == {jobs.source.slot}
    jobs.assert_equal(*TABLES)


def test_a_snapshot_is_complete_when_every_writer_is_past_its_end(jobs: PostgresJobs, tables: Database) -> None:
    stream(jobs)
    jobs.snapshot()
    done = [jobs.table(name).complete_lsn or 0 for name in TABLES]
    stream(jobs, only=1)
    at = {writer: p.position for (_, writer), p in current_epochs(jobs.lake.positions.read(jobs.source.name)).items()}
    assert at[1] > max(done) >= min(done) >= at[2] == jobs.lake.persisted_position(jobs.source.name)
    stream(jobs, only=2)
    jobs.assert_equal(*TABLES)


def test_a_table_moved_manually_between_publications_gets_a_new_snapshot(jobs: PostgresJobs, tables: Database) -> None:
    settle(jobs)
    before = jobs.table("public.c").snapshot_id
    first, second = (f'"{jobs.source.publication_of(writer)}"' for writer in (1, 2))
    tables.execute(f"alter publication {second} drop table c")
    tables.execute("update c set v = 5")  # no writer brings it
    tables.execute(f"alter publication {first} add table c")
    settle(jobs)
    assert jobs.table("public.c").snapshot_id != before
    jobs.assert_equal(*TABLES)


def test_a_table_in_two_publications_is_reported(
    jobs: PostgresJobs, tables: Database, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.open()
    tables.execute(f'alter publication "{jobs.source.publication_of(2)}" add table a')
    snapshotter = jobs.snapshot()
    assert "public.a is left out: it is in several publications" in caplog.text
    assert snapshotter.unreadable == {}
    assert {t.table_name for t in jobs.lake.tables.read(jobs.source.name).values()} == {"public.b", "public.c"}


def test_a_table_attached_under_another_writers_table_has_no_duplicates(jobs: PostgresJobs, tables: Database) -> None:
    """It leaves the publication that it had; what came twice until then is replaced by a new snapshot of the root."""
    tables.execute(
        "drop table a, b; create table r (id int, v int) partition by range (id);"
        "create table r1 partition of r for values from (0) to (10); create table p (id int, v int);"
        "alter table p replica identity full; alter table r1 replica identity full;"
        "insert into p select 10, 0 from generate_series(1, 4); insert into r values (1, 0), (1, 0)"
    )
    settle(jobs)
    assert (owners(jobs)["public.p"], owners(jobs)["public.r"]) == (1, 2)
    tables.execute("alter table r attach partition p for values from (10) to (20)")
    tables.execute("delete from p where ctid = (select min(ctid) from p); insert into r values (11, 1)")
    stream(jobs)
    assert jobs.table("public.r").state == QUEUED, "it is counted twice, so the models must not read it"
    jobs.snapshot()
    assert "public.p" not in owners(jobs)
    tables.execute("insert into r values (12, 2); delete from r where id = 11")
    settle(jobs)
    jobs.assert_equal("public.r")
    assert len([event for event in jobs.events() if event["columns"].get("v") == "2"]) == 1
    tables.execute("alter table r detach partition p")
    jobs.snapshot()
    tables.execute("insert into p values (13, 3)")
    settle(jobs)
    jobs.assert_equal("public.r", "public.p")


def test_processes_started_at_once_create_each_slot_once(jobs: PostgresJobs, tables: Database) -> None:
    jobs.source = jobs.source.model_copy(update={"writers": 3})
    failures: list[BaseException] = []

    def begin() -> None:
        try:
            open_jobs(jobs.lake, jobs.source, jobs.settings).release_resources()
        except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=begin) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(jobs.lake.positions.read(jobs.source.name)) == 3
    settle(jobs)
    assert sorted(owners(jobs).values()) == [1, 2, 3]
    jobs.assert_equal(*TABLES)


def test_a_stalled_writer_is_reported_with_the_time_that_others_wait(jobs: PostgresJobs, tables: Database) -> None:
    settle(jobs)
    settings = Settings(sources={jobs.source.name: jobs.source}, settings=jobs.settings)
    for change in ("select", "update a set v = 1"):
        tables.execute(change)
        stream(jobs, only=1)
        (found,) = status.read_status(jobs.lake, settings).sources
        assert [(w["writer"], w["tables"]) for w in found.writers] == [(1, 2), (2, 1)]
        waited = time.monotonic()
        while not found.writers[1]["held_seconds"]:
            assert time.monotonic() < waited + 30
            (found,) = status.read_status(jobs.lake, settings).sources
        assert found.writers[0]["held_seconds"] == 0
        assert found.position == found.writers[1]["position"] < found.writers[0]["position"]
        stream(jobs, only=2)
        (found,) = status.read_status(jobs.lake, settings).sources
        assert found.writers[1]["held_seconds"] == 0


def test_tail_resumes_at_every_token(jobs: PostgresJobs, tables: Database) -> None:
    settle(jobs)
    for n in range(3):
        with tables.connect(autocommit=False) as connection:
            for name in "acb":
                connection.execute(f"update {name} set v = {n} where id = 1".encode())
    stream(jobs, only=1)
    first = lines(jobs, "s0")
    assert {line["writer"] for line in first} == {1}
    stream(jobs)
    rest = lines(jobs, next(str(line["token"]) for line in reversed(first) if line["token"]))
    assert {line["writer"] for line in rest} == {2}
    whole = lines(jobs, "s0")
    assert by_writer(whole) == by_writer([*first, *rest])
    assert [e["commit_lsn"] for e in whole] == sorted(e["commit_lsn"] for e in whole)
    for place, line in enumerate(whole):
        if line["token"]:
            after = lines(jobs, str(line["token"]))
            assert by_writer([*whole[: place + 1], *after]) == by_writer(whole)
    tables.execute("update c set v = 9 where id = 2")
    change_writers(jobs, 1)
    change_writers(jobs, 2)  # it was removed, and missed nothing
    stream(jobs)
    assert [line["columns"] for line in lines(jobs, str(whole[-1]["token"]))] == [{"id": "2", "v": "9"}]


def lines(jobs: PostgresJobs, token: str) -> list[dict[str, Any]]:
    found = tail.follow(jobs.lake, jobs.source.name, Token.parse(token), lambda _: True)
    return [json.loads(line) for line in found]


def by_writer(found: list[dict[str, Any]]) -> dict[int, list[tuple[int, int]]]:
    """The places of each writer's lines."""
    writers = {line["writer"] for line in found}
    return {w: [(e["commit_lsn"], e["commit_index"]) for e in found if e["writer"] == w] for w in writers}


def test_after_a_lost_log_all_writers_are_reset(jobs: PostgresJobs, tables: Database) -> None:
    settle(jobs, writers=3)
    tables.drop_slot(jobs.source.slot_of(2))
    tables.execute("update a set v = 7; update b set v = 7; update c set v = 7")
    jobs.source = jobs.source.model_copy(update={"writers": 2, "slot": f"{jobs.source.slot}_new"})
    jobs.resnapshot()
    assert slots(tables) == {jobs.source.slot, jobs.source.slot_of(2)}, "the old ones would keep the log for ever"
    settle(jobs)
    assert jobs.lake.sources.read_active_writers(jobs.source.name) == {1, 2}
    jobs.assert_equal(*TABLES)


def test_a_writer_with_a_lost_slot_is_reset_alone(
    jobs: PostgresJobs, tables: Database, caplog: pytest.LogCaptureFixture
) -> None:
    settle(jobs, writers=3)
    before = {name: jobs.table(name).snapshot_id for name in TABLES}
    token = str(Token(jobs.lake.persisted_position(jobs.source.name) or 0))
    tables.execute("update a set v = 7; update c set v = 7")
    tables.drop_slot(jobs.source.slot_of(2))
    with pytest.raises(Failure, match="slot does not exist.*`--writer N` instead of `--all`"):
        open_jobs(jobs.lake, jobs.source, jobs.settings)
    with pytest.raises(Failure, match="slot does not exist"):
        open_jobs(jobs.lake, jobs.source, jobs.settings, running=[2])
    tables.execute("create table d (id int primary key, v int); insert into d values (1, 1)")
    opened = open_jobs(jobs.lake, jobs.source, jobs.settings, running=[1])
    assert "slot does not exist" in caplog.text
    opened.snapshotter().run(until_done=True)
    target = opened.emit_marker()
    (first,) = [one for one in opened.streams if one.position.writer == 1]
    opened.writer(first, CommitHooks(), None).run(until=target)
    assert jobs.table("public.d").complete_lsn is not None
    with pytest.raises(UsageError, match="no writer 4"):
        start_over_writers(jobs.lake, jobs.source, jobs.settings, [4])
    queued = start_over_writers(jobs.lake, jobs.source, jobs.settings, [2])
    assert "public.c" in queued
    assert not {"public.a", "public.b"}.intersection(queued)
    settle(jobs)
    jobs.assert_equal(*TABLES, "public.d")
    assert [jobs.table(name).snapshot_id == before[name] for name in TABLES] == [True, True, False]
    with pytest.raises(Failure, match="the log was lost, with these changes: writer 2's from"):
        lines(jobs, token)


def test_transactions_stay_whole_with_random_kills_and_numbers_of_writers(
    jobs: PostgresJobs, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of pgbench's is three updates and an insert; below the source's position all four are there, once."""
    pgbench_tables(database)
    randomly = random.Random(3)
    tables = [f"public.pgbench_{name}" for name in ("accounts", "branches", "tellers", "history")]
    persisted = 0

    def maybe_die(_: object) -> None:
        if randomly.random() < 0.1:
            raise Killed

    settle(jobs, writers=3)
    with pgbench(database, clients=8, rate=100):
        for writers in (3, 1, 2, 3, 3, 2, 1):
            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                patch.setattr(writer_count, "StreamWriter", partial(StreamWriter, hooks=CommitHooks(*[maybe_die] * 4)))
                change_writers(jobs, writers)
            change_writers(jobs, writers)
            opened = open_jobs(jobs.lake, jobs.source, jobs.settings)
            target = opened.emit_marker()
            with contextlib.ExitStack() as threads:
                for one in opened.streams:
                    writer = opened.writer(one, CommitHooks(*[maybe_die] * 4), None)
                    threads.enter_context(_in_a_thread(writer, target))
            opened.release_resources()
            now = jobs.lake.persisted_position(jobs.source.name) or 0
            assert now >= persisted
            persisted = now
            counts = Counter(event["commit_lsn"] for event in jobs.events() if event["commit_lsn"] < persisted)
            assert set(counts.values()) <= {4}
            changes(jobs)
    settle(jobs)
    assert jobs.lake.sources.read_active_writers(jobs.source.name) == {1}
    jobs.assert_equal(*tables)


@contextlib.contextmanager
def _in_a_thread(writer: StreamWriter, target: int) -> Iterator[None]:
    """It runs until it has passed the target, or is killed."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            writer.run(until=target)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    for failure in failures:
        raise failure
