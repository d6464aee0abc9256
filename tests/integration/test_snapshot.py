"""Snapshots while the stream runs: no row is lost, no chunk is read twice, no other table is blocked."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Settings
from ingest.lake import Chunk, Lake
from ingest.lake.source_tables import DONE, ENDED, QUEUED, RUNNING
from ingest.pipeline.ingest_jobs import Jobs as AllJobs
from ingest.snapshot.executor_reads import ChunkReader
from ingest.snapshot.snapshotter import SnapshotHooks
from ingest.sources.postgres.postgres_source import open_jobs
from ingest.sources.postgres.slots import replication_slots
from ingest.stream.batch_committer import CommitHooks
from tests.conftest import Database
from tests.harness.kill_points import Killed, call_once, kill
from tests.harness.postgres_jobs import PostgresJobs, chunk_settings, done_chunks

PAGES = 8192


@pytest.fixture
def chunked(lake: Lake, source: PostgresSource, settings: JobSettings) -> Iterator[PostgresJobs]:
    """Chunks of two blocks, one at a time."""
    small = chunk_settings(settings, 2 * PAGES)
    postgres_jobs = PostgresJobs(lake, source, small)
    yield postgres_jobs
    postgres_jobs.close()


@pytest.fixture
def accounts(database: Database) -> Database:
    database.execute(
        "create table accounts (id int primary key, owner text, balance int not null);"
        "insert into accounts select i, repeat('o', 100), 10 from generate_series(1, 250) i"
    )
    return database


Hook = Callable[[object], None]


def after_first_chunks(work: Callable[[], object]) -> SnapshotHooks:
    """Calls `work` once, after the first group of chunks was committed."""
    return SnapshotHooks(after_commit=call_once(work))


# Rows that change during the snapshot


PLACES = ("after_plan", "after_claim", "before_commit", "after_commit")


def test_rows_changed_at_any_moment_end_as_in_the_source(chunked: PostgresJobs, accounts: Database) -> None:
    """Different rows are deleted, updated, inserted and moved before their chunk is read, during the read, and after
    it.
    """

    def change(moment: int) -> None:
        def ids(digit: int) -> str:
            return f"id % 40 = {10 * moment + digit}"

        accounts.execute(f"delete from accounts where {ids(1)}")
        accounts.execute(f"update accounts set balance = 20 where {ids(2)}")
        accounts.execute(f"insert into accounts values ({1000 + moment}, 'late', 1), ({-1000 - moment}, 'early', 1)")
        accounts.execute(f"update accounts set id = id + 2000 where {ids(3)}")
        accounts.execute(f"update accounts set id = -id where {ids(4)}")

    hooks = {place: call_once(partial(change, moment)) for moment, place in enumerate(PLACES)}
    with chunked.streaming():
        chunked.snapshot(SnapshotHooks(**hooks))
    chunked.stream()
    chunked.assert_equal("public.accounts")


def test_a_transfer_is_visible_for_both_accounts_or_for_none(chunked: PostgresJobs, accounts: Database) -> None:
    """The sum of all balances is the same at the snapshot LSN and at every later position."""

    def transfer(_: object) -> None:
        with accounts.connect(autocommit=False) as connection:
            connection.execute("update accounts set balance = balance - 5 where id = 1")
            connection.execute("update accounts set balance = balance + 5 where id = 250")

    chunked.snapshot(SnapshotHooks(after_claim=transfer))
    rows = chunked.snapshot_rows(chunked.table("public.accounts"))
    assert sum(int(row["columns"]["balance"]) for row in rows) == 2500
    chunked.stream()
    chunked.assert_equal("public.accounts")


def test_older_events_do_not_change_newer_snapshot_rows(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    accounts.execute("update accounts set balance = 11")
    accounts.execute("delete from accounts where id > 200")
    accounts.execute("insert into accounts values (201, 'new', 5)")
    jobs.close()  # The snapshot is taken later than the creation of the slot.
    jobs.snapshot()
    jobs.stream()
    jobs.assert_equal("public.accounts")


def test_an_unbounded_read_leaves_a_core_for_the_renewal_of_its_lease(
    lake: Lake, source: PostgresSource, settings: JobSettings, database: Database
) -> None:
    """Tables without a key are read at once, whatever their size. Two workers would take both cores of the tests'
    Spark.
    """
    database.execute("create table keyless as select repeat('v', 900) as v from generate_series(1, 100)")
    database.execute("alter table keyless replica identity full")
    jobs = PostgresJobs(lake, source, chunk_settings(settings, 2 * PAGES, workers=2, chunk_lease_seconds=1.0))
    claimed: list[Chunk] = []
    with database.connect(autocommit=False) as connection:

        def hold(chunks: Sequence[Chunk]) -> None:
            connection.execute("lock table keyless in access exclusive mode")
            claimed.extend(chunks)

        thread = threading.Thread(target=jobs.snapshot, args=[SnapshotHooks(after_claim=hold)])
        thread.start()
        while not claimed or lake.chunks.read([claimed[0].snapshot_id])[0].rev == claimed[0].rev:
            assert thread.is_alive()
        connection.rollback()
        thread.join()
    assert len(claimed) > 1
    jobs.stream()
    jobs.assert_equal("public.keyless")
    jobs.close()


def test_a_transaction_open_at_the_snapshot_lsn_is_awaited_and_logged(
    jobs: PostgresJobs, accounts: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.sources.postgres.slots.replication_slots._REPORT_SECONDS", 0.1)
    with psycopg.connect(accounts.dsn) as connection:
        connection.execute("update accounts set balance = 0 where id = 1")
        thread = threading.Thread(target=jobs.open)
        thread.start()
        while "waits for open transactions: pid" not in caplog.text:
            assert thread.is_alive()
        connection.commit()
        thread.join()
    jobs.settle()
    jobs.assert_equal("public.accounts")


def test_a_locked_table_is_awaited_and_reported(
    jobs: PostgresJobs, accounts: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the snapshot worker and by the stream, which has an earlier change of the table; both can be stopped."""
    monkeypatch.setattr("ingest.sources.postgres.postgres_connection.LOCK_TIMEOUT", "100ms")
    snapshotter = jobs.snapshotter()
    snapshots = threading.Thread(target=snapshotter.run)
    with accounts.connect(autocommit=False) as writing, accounts.connect(autocommit=False) as other, jobs.streaming():
        writing.execute("update accounts set balance = 0 where id = 1")
        lock = threading.Thread(target=other.execute, args=["lock table accounts in access exclusive mode"])
        lock.start()
        accounts.lock_awaited("accounts")
        writing.commit()  # later queries of the table wait behind the lock
        lock.join()
        snapshots.start()
        loggers: set[str] = set()
        while loggers != {"ingest.snapshot.snapshotter", "ingest.sources.postgres.schema_tracking.relation_registry"}:
            assert snapshots.is_alive()
            loggers = {r.name for r in list(caplog.records) if "locked: public.accounts (by process" in r.getMessage()}
        snapshotter.stop()
        snapshots.join()
    jobs.settle()
    jobs.assert_equal("public.accounts")


def test_a_starting_process_reports_a_locked_table(
    jobs: PostgresJobs, accounts: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.sources.postgres.postgres_connection.LOCK_TIMEOUT", "100ms")
    start = threading.Thread(target=jobs.open)
    with accounts.connect(autocommit=False) as other:
        other.execute("lock table accounts in access exclusive mode")
        start.start()
        while not any("locked: public.accounts (by process" in r.getMessage() for r in list(caplog.records)):
            assert start.is_alive()
        other.rollback()
    start.join()
    jobs.settle()
    jobs.assert_equal("public.accounts")


# Kills, claims, leases


@pytest.mark.parametrize(
    "place",
    [
        "after_commit",
        "after_plan",
        "after_claim",
        "before_commit",
        "before_done",
    ],
)
def test_a_killed_snapshot_resumes_after_its_last_committed_chunk(
    lake: Lake, source: PostgresSource, settings: JobSettings, accounts: Database, place: str
) -> None:
    quick = chunk_settings(settings, 2 * PAGES, chunk_lease_seconds=0.5)
    jobs = PostgresJobs(lake, source, quick)
    calls: list[object] = []

    def kill_third(_: object) -> None:
        calls.append(None)
        if place in ("after_plan", "before_done") or len(calls) == 3:
            raise Killed

    with pytest.raises(Killed):
        jobs.snapshot(SnapshotHooks(**{place: kill_third}))
    before = done_chunks(lake, source.name)
    assert bool(before) == (place != "after_plan")
    accounts.execute("update accounts set balance = 20 where id = 1")
    accounts.execute("delete from accounts where id = 2")
    accounts.execute("insert into accounts values (2, 'again', 1)")
    jobs.settle()
    assert before.items() <= done_chunks(lake, source.name).items()
    jobs.assert_equal("public.accounts")
    jobs.close()


def test_a_snapshot_continues_on_a_new_connection_after_a_cut(chunked: PostgresJobs, accounts: Database) -> None:
    holder = "datname = current_database() and state = 'idle in transaction'"

    def cut() -> None:
        assert accounts.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {holder}") == [(True,)]
        accounts.execute("update accounts set balance = 20 where id in (1, 250)")

    with chunked.streaming():
        chunked.snapshot(SnapshotHooks(after_claim=call_once(cut)))
    chunked.stream()
    chunked.assert_equal("public.accounts")


def test_two_snapshotters_share_the_chunks_of_one_table(chunked: PostgresJobs, accounts: Database) -> None:
    chunked.open()
    first, second = chunked.snapshotter(), chunked.snapshotter()
    failures: list[BaseException] = []

    def work(snapshotter: Any) -> None:
        try:
            snapshotter.run(until_done=True)
        except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=[worker]) for worker in (first, second)]
    with chunked.streaming():  # each worker reads at its own position, so the result needs the stream
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    table = chunked.table("public.accounts")
    chunks = chunked.lake.chunks.read([str(table.snapshot_id)])
    assert all(chunk.attempt == 1 for chunk in chunks)
    assert first.rows + second.rows == 250
    chunked.stream()
    chunked.assert_equal("public.accounts")


def test_no_chunk_is_read_before_the_snapshot_lsn_of_its_table(chunked: PostgresJobs, accounts: Database) -> None:
    """One process begins a snapshot; another process, with an older exported snapshot, continues it."""
    accounts.execute("create table late (id int primary key, v text); insert into late values (1, 'old'), (2, 'gone')")
    chunked.open()

    def restart_snapshot() -> None:
        accounts.execute("update late set v = 'new' where id = 1")
        accounts.execute("delete from late where id = 2")
        chunked.queue("public.late")
        quick = chunked.settings.model_copy(update={"chunk_lease_seconds": 0.1})
        with pytest.raises(Killed):
            PostgresJobs(chunked.lake, chunked.source, quick).snapshot(SnapshotHooks(after_claim=kill))
        assert chunked.table("public.late").state == RUNNING

    with chunked.streaming():
        chunked.snapshot(after_first_chunks(restart_snapshot))
    chunked.stream()
    chunked.assert_equal("public.late")
    chunked.assert_equal("public.accounts")


def test_chunks_of_a_worker_paused_past_its_lease_are_ignored(
    lake: Lake, source: PostgresSource, settings: JobSettings, accounts: Database
) -> None:
    quick = settings.model_copy(update={"chunk_lease_seconds": 0.5})
    jobs = PostgresJobs(lake, source, quick)
    jobs.open()

    def claim_as_another(_: object) -> None:
        snapshot_id = str(jobs.table("public.accounts").snapshot_id)
        # As another worker would after the lease has expired; here the lease is still renewed.
        while not jobs.lake.chunks.claim(jobs.lake.chunks.read([snapshot_id]), "another", 0.1):
            pass

    paused = jobs.snapshotter(SnapshotHooks(before_commit=call_once(lambda: claim_as_another(None))))
    paused.run(until_done=True)
    table = jobs.table("public.accounts")
    (chunk,) = jobs.lake.chunks.read([str(table.snapshot_id)])
    assert (chunk.state, chunk.attempt) == (DONE, 3)
    assert paused.rows == 250
    jobs.stream()
    jobs.assert_equal("public.accounts")
    jobs.close()


def test_a_snapshot_queued_while_another_completes_is_taken(jobs: PostgresJobs, accounts: Database) -> None:
    snapshots: list[str] = []

    def queue_again(chunks: Any) -> None:
        snapshots.append(chunks[0].snapshot_id)
        if len(snapshots) == 1:
            table = jobs.table("public.accounts")
            assert jobs.lake.tables.upsert(jobs.source.name, [table.with_snapshot_queued("asked for")])

    jobs.snapshot(SnapshotHooks(before_done=queue_again))
    assert len(set(snapshots)) == 2
    assert jobs.table("public.accounts").snapshot_id == snapshots[1]
    jobs.stream()
    jobs.assert_equal("public.accounts")


# Tables that are altered, dropped or unreadable


REWRITES = (
    "alter table {t} alter balance type bigint",
    "vacuum full {t}",
    "alter table {t} add at timestamptz default clock_timestamp()",
    "truncate {t}",
    "truncate {t}; insert into {t} values (7, 'after', 7)",
    "drop table {t}",
)


def test_tables_altered_between_chunks_are_read_again(chunked: PostgresJobs, accounts: Database) -> None:
    """Each table is altered after the commit of the first of its chunks."""
    rewrites = {f"t{number}": statement for number, statement in enumerate(REWRITES)}
    copy_accounts(accounts, *rewrites)
    snapshots: defaultdict[str, set[str]] = defaultdict(set)

    def rewrite(chunks: Sequence[Chunk]) -> None:
        for name, chunk in name_chunks(chunked, chunks):
            if name in rewrites and name not in snapshots:
                accounts.execute(rewrites[name].format(t=name))
            snapshots[name].add(chunk.snapshot_id)

    with chunked.streaming():
        chunked.snapshot(SnapshotHooks(after_commit=rewrite))
    chunked.settle()
    *kept, dropped = rewrites
    chunked.assert_equal("public.accounts", *(f"public.{name}" for name in kept))
    assert [t.state for t in lake_tables(chunked) if t.table_name == f"public.{dropped}"] == [ENDED]
    counts_of_snapshots = {rewrites[name]: len(snapshots[name]) for name in kept}
    assert all(count > 1 or "truncate" in statement for statement, count in counts_of_snapshots.items()), (
        counts_of_snapshots
    )
    assert len(snapshots["accounts"]) == 1


def copy_accounts(accounts: Database, *names: str) -> None:
    """Creates tables like accounts, of two chunks each if a chunk is two blocks."""
    for name in names:
        accounts.execute(
            f"create table {name} (like accounts including all); insert into {name} select * from accounts"
        )


def name_chunks(jobs: PostgresJobs, chunks: Sequence[Chunk]) -> list[tuple[str, Chunk]]:
    """Chunks with the names of their tables in `public`."""
    tables = jobs.lake.tables.read(jobs.source.name)
    return [(tables[chunk.table_id].table_name.removeprefix("public."), chunk) for chunk in chunks]


def test_a_chunk_read_during_a_column_rename_is_ignored(chunked: PostgresJobs, accounts: Database) -> None:
    accounts.execute("alter table accounts add other int not null default 3")
    swap = "; ".join(
        f"alter table accounts rename {name} to {other}"
        for name, other in (("balance", "x"), ("other", "balance"), ("x", "other"))
    )
    claims: list[object] = []

    def swap_columns(claimed: object) -> None:
        claims.append(claimed)
        if len(claims) == 2:
            accounts.execute(swap)

    def swap_columns_back(_: object) -> None:
        if len(claims) == 2:
            accounts.execute(swap)
            claims.append(None)

    with chunked.streaming():
        chunked.snapshot(SnapshotHooks(after_claim=swap_columns, before_commit=swap_columns_back))
    chunked.settle()
    chunked.assert_equal("public.accounts")


def test_rows_with_a_key_of_a_domain_type_are_read_again(
    lake: Lake, source: PostgresSource, settings: JobSettings, database: Database
) -> None:
    """Rows that moved from an unread into a read chunk are read again by key; here by keys with trailing blanks."""
    database.execute(
        "create domain code as char(6); create table t (id code primary key, place int, pad text, big text);"
        "alter table t alter big set storage external; insert into t "
        "select 'k' || i, i, repeat('p', 1000), repeat(i::text, 3000) from generate_series(1, 60) i"
    )
    jobs = PostgresJobs(lake, source, chunk_settings(settings, 2 * PAGES, chunk_lease_seconds=0.5))
    committed: list[object] = []

    def kill_second(chunks: object) -> None:
        committed.append(chunks)
        if len(committed) == 2:
            raise Killed

    with pytest.raises(Killed):
        jobs.snapshot(SnapshotHooks(after_commit=kill_second))
    database.execute("delete from t where place <= 5")
    database.execute("vacuum t")
    database.execute("update t set pad = repeat('q', 1000) where place between 40 and 44")
    jobs.settle()
    jobs.assert_equal("public.t")
    jobs.close()


def test_a_rewrite_between_snapshot_lsn_and_plan_is_detected(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    accounts.execute("alter table accounts alter balance type bigint")
    jobs.settle()
    assert sum(jobs.lake_rows("public.accounts").values()) == 250
    jobs.assert_equal("public.accounts")


def test_tables_dropped_at_any_point_of_a_snapshot_block_no_others(jobs: PostgresJobs, accounts: Database) -> None:
    """At each hook one table is dropped, and one is dropped and recreated; all are read in one snapshot run."""
    places = ("after_plan", "after_claim", "before_commit", "before_done")
    accounts.execute("create table other (id int primary key); insert into other values (1)")
    dropped = {f"{kind}_{place}": place for place in places for kind in ("dropped", "recreated")}
    copy_accounts(accounts, *dropped)
    remaining = set(dropped)

    def drop(place: str, chunks: Sequence[Chunk]) -> None:
        for name in {name for name, _ in name_chunks(jobs, chunks)} & remaining:
            if dropped[name] == place:
                remaining.remove(name)
                accounts.execute(f"drop table {name}")
                if name.startswith("recreated"):
                    accounts.execute(f"create table {name} (id int primary key, other text)")
                    accounts.execute(f"insert into {name} values (1, 'recreated')")

    with jobs.streaming():  # a snapshot read at two positions waits for the stream
        jobs.snapshot(SnapshotHooks(**{place: partial(drop, place) for place in places}))
    jobs.settle()
    assert not remaining
    states: defaultdict[str, list[str]] = defaultdict(list)
    for table in lake_tables(jobs):
        states[table.table_name].append(table.state)
    for name in dropped:
        actual = sorted(states[f"public.{name}"])
        assert actual == ([DONE, ENDED] if name.startswith("recreated") else [ENDED]), name
    recreated = [f"public.{name}" for name in dropped if name.startswith("recreated")]
    jobs.assert_equal("public.accounts", "public.other", *recreated)


def test_an_unreadable_table_is_reported_and_blocks_no_others(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    accounts: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    role = f"reader_{accounts.name}"
    accounts.execute(
        f"create role {role} login replication; grant select on accounts to {role};"
        "create table secrets (id int primary key);"
        "create publication shared for table accounts, secrets"
    )
    dsn = psycopg.conninfo.make_conninfo(accounts.dsn, user=role)
    jobs = PostgresJobs(lake, new_source(dsn=dsn, publication="shared"), settings)
    try:
        jobs.settle()
        assert "public.secrets is left out: no permission" in caplog.text
        assert [t.table_name for t in lake.tables.read(jobs.source.name).values()] == ["public.accounts"]
        jobs.assert_equal("public.accounts")
        accounts.execute(f"revoke select on accounts from {role}")
        jobs.queue("public.accounts")
        jobs.snapshot()
        assert "public.accounts is left out: no permission" in caplog.text
    finally:
        jobs.close()
        accounts.execute(f"drop owned by {role}; drop role {role}")


def test_tables_without_a_usable_key_are_reported_and_excluded(
    jobs: PostgresJobs, accounts: Database, caplog: pytest.LogCaptureFixture
) -> None:
    accounts.execute(
        "create table keyless (a int);"
        "create table nothing (id int primary key); alter table nothing replica identity nothing;"
        "create unlogged table unlogged (id int primary key);"
        "create table counted (a int); alter table counted replica identity full;"
        "insert into counted values (1), (1), (null)"
    )
    jobs.settle()
    for name in ("keyless", "nothing", "unlogged"):
        assert f"public.{name} is left out" in caplog.text
    accounts.execute("update keyless set a = 1; update nothing set id = 2")  # updates are still possible
    accounts.execute("delete from counted where a is null; insert into counted values (1), (2)")
    jobs.stream()
    jobs.assert_equal("public.accounts", "public.counted")


KEYS = {
    "int2": ("smallint", "i"),
    "int8": ("bigint", "i::bigint * 1000000007"),
    "uuid": ("uuid", "md5(i::text)::uuid"),
    "collated": ("text collate ucs_basic", "chr(64 + i) || 'ä\"\\' || i"),
    "floats": ("double precision", "case i when 1 then 'NaN' when 2 then '-0' else i / 3.0 end"),
    "days": ("date", "case i when 1 then '-infinity' else '2000-01-01'::date + i end"),
    "numbers": ("numeric", "case i when 1 then 'NaN' else i::numeric ^ 20 end"),
    "bytes": ("bytea", "decode(lpad(to_hex(i), 4, '0'), 'hex')"),
}


def test_unusual_keys_and_names_are_the_same_in_snapshot_and_stream(
    lake: Lake, settings: JobSettings, new_source: Callable[..., PostgresSource], database: Database
) -> None:
    """Keys of many types, names with dots, quotes and capitals, and a table that is empty when it is read."""
    for name, (kind, value) in KEYS.items():
        database.execute(f"create table {name} (id {kind} primary key, n int)")
        database.execute(f"insert into {name} select {value}, i from generate_series(1, 50) i")
    database.execute(
        "create table pairs (b int, a text, n int, primary key (a, b));"
        "insert into pairs select i, 'a' || i, i from generate_series(1, 50) i;"
        "create table empty (id int primary key, n int);"
        'create schema "S.p""ä"; create table "S.p""ä"."T.x""y" ("I d" int primary key, "sel\'ect" text);'
        'insert into "S.p""ä"."T.x""y" values (1, \'x\')'
    )
    names = [*KEYS, "pairs"]
    jobs = PostgresJobs(lake, new_source(tables=("public.*", "S.p*")), settings)
    jobs.settle()
    assert jobs.table("public.empty").row_count == 0
    for name in names:
        database.execute(f"update {name} set n = -n where n % 2 = 0; delete from {name} where n = 1")
    database.execute("insert into empty select i, i from generate_series(1, 1000) i")
    database.execute('update "S.p""ä"."T.x""y" set "sel\'ect" = null, "I d" = 2')
    jobs.stream()
    jobs.assert_equal("public.empty", *(f"public.{name}" for name in names))
    odd = jobs.table('S.p"ä.T.x"y')
    last = jobs.events(odd.table_id)[-1]
    assert (last["row_key"], last["columns"]) == ('["2"]', {"I d": "2", "sel'ect": None})
    jobs.close()


def test_many_small_tables_are_started_committed_and_done_together(jobs: PostgresJobs, database: Database) -> None:
    for n in range(30):
        database.execute(f"create table t{n} (id int primary key); insert into t{n} values ({n})")
    groups: list[list[Chunk]] = []
    jobs.snapshot(SnapshotHooks(after_commit=lambda chunks: groups.append(list(chunks))))
    assert [len(group) for group in groups] == [30]
    assert {t.state for t in lake_tables(jobs)} == {DONE}
    assert len({t.complete_lsn for t in lake_tables(jobs)}) == 1


def lake_tables(jobs: PostgresJobs) -> list[Any]:
    return list(jobs.lake.tables.read(jobs.source.name).values())


def test_a_stopped_snapshot_worker_leaves_nothing_running(chunked: PostgresJobs, accounts: Database) -> None:
    snapshotter = chunked.snapshotter()
    snapshotter._hooks.after_commit = lambda _: snapshotter.stop()
    snapshotter.run(until_done=True)
    table = chunked.table("public.accounts")
    assert table.state == RUNNING
    states = {chunk.state for chunk in chunked.lake.chunks.read([str(table.snapshot_id)])}
    assert states == {DONE, QUEUED}
    ((sessions,),) = accounts.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tidemark'"
    )
    assert sessions == 0


# Without soft deletes


def test_an_error_of_the_executors_is_reported_with_its_message(lake: Lake, settings: JobSettings) -> None:
    reader = ChunkReader(lake.spark, "not_on_the_executors", "", settings)
    with pytest.raises(Failure, match=r"can't read \(ModuleNotFoundError: No module named 'not_on_the_executors'\)"):
        reader.read([(1, {"folder": "nowhere"})])


def apply_in_commit_order(jobs: PostgresJobs, batches: Sequence[str]) -> set[str]:
    """Keys of accounts if each batch is applied in the order of the commits and deletes are final."""
    rows: set[str] = set()
    for table in batches:
        op = "op" if table == "wal_events" else "'insert' as op"
        query = f"select row_key, {op} from raw.{table} where source = '{jobs.source.name}'"
        for row in jobs.lake.spark.sql(query).collect():
            (rows.discard if row.op == "delete" else rows.add)(row.row_key)
    return rows


@pytest.mark.parametrize("soft_deletes", [True, False])
def test_without_soft_deletes_snapshots_come_first_and_alone(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    accounts: Database,
    soft_deletes: bool,
) -> None:
    """Without this rule a row would reappear if it was read, then deleted, and its delete was committed first."""
    source = new_source(soft_deletes=soft_deletes)
    jobs = open_jobs(lake, source, settings)
    is_committed = threading.Event()
    was_committed: list[bool] = []

    def delete(_: object) -> None:
        accounts.execute("delete from accounts where id = 1")
        # Committed at once, unless the stream waits for the snapshot.
        was_committed.append(is_committed.wait(60 if soft_deletes else 3))

    def after_stream(_: object) -> None:
        batches.append("wal_events")
        is_committed.set()

    batches: list[str] = []
    snapshotter = jobs.snapshotter(
        SnapshotHooks(
            before_commit=call_once(lambda: delete(None)), after_commit=lambda _: batches.append("snapshot_rows")
        )
    )
    writer = jobs.writer(jobs.streams[0], CommitHooks(after_commit=after_stream), snapshotter)
    thread = threading.Thread(target=writer.run)
    thread.start()
    snapshotter.run(until_done=True)
    assert is_committed.wait(30)
    writer.stop()
    thread.join()
    assert was_committed == [soft_deletes]
    assert ('["1"]' in apply_in_commit_order(PostgresJobs(lake, source, settings), batches)) == soft_deletes


def test_an_unreadable_table_does_not_block_hard_delete_streams(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, accounts: Database, role: str
) -> None:
    accounts.execute("create table secret (id int primary key); create publication given for table accounts, secret")
    accounts.execute(f"alter role {role} replication; grant select on accounts, secret to {role}")
    dsn = psycopg.conninfo.make_conninfo(accounts.dsn, user=role)
    source = new_source(dsn=dsn, publication="given", soft_deletes=False)
    whole = Settings(sources={source.name: source}, settings=settings)
    ingest(lake, whole)
    accounts.execute(f"revoke select on secret from {role}; update accounts set balance = 0")
    lake.tables.queue_snapshots(source.name, "asked for", ["public.secret"])
    ingest(lake, whole)
    PostgresJobs(lake, source, settings).assert_equal("public.accounts")


def ingest(lake: Lake, settings: Settings) -> None:
    jobs = AllJobs(lake, settings)
    with jobs.running():
        jobs.wait(until_caught_up=True)


def test_a_table_queued_by_the_last_batch_is_awaited(
    lake: Lake, source: PostgresSource, settings: JobSettings, accounts: Database
) -> None:
    whole = Settings(sources={source.name: source}, settings=settings)
    ingest(lake, whole)
    (before,) = lake.tables.read(source.name).values()

    class Queuing(AllJobs):
        def committed_position(self, source: str) -> int | None:
            position = super().committed_position(source)
            if lake.tables.read(source)[before.table_id] == before:
                lake.tables.queue_snapshots(source, "asked for")
            return position

    jobs = Queuing(lake, whole)
    with jobs.running():
        jobs.wait(until_caught_up=True)
    after = lake.tables.read(source.name)[before.table_id]
    assert after.state == DONE
    assert after.snapshot_id != before.snapshot_id


def test_a_small_table_does_not_wait_for_a_large_snapshot(chunked: PostgresJobs, accounts: Database) -> None:
    committed: list[str] = []

    def create_table(_: object) -> None:
        accounts.execute("create table later (id int primary key); insert into later values (1)")

    hooks = SnapshotHooks(
        after_claim=call_once(lambda: create_table(None)),
        after_commit=lambda chunks: committed.extend(c.table_id for c in chunks),
    )
    chunked.settings = chunked.settings.model_copy(update={"catalog_poll_seconds": 0.001})
    with chunked.streaming():
        chunked.snapshot(hooks)
    chunked.stream()
    large, later = (chunked.table(f"public.{name}").table_id for name in ("accounts", "later"))
    assert committed.index(later) < len(committed) - 1 - committed[::-1].index(large)
    chunked.assert_equal("public.accounts", "public.later")


def test_an_open_transaction_delays_queued_snapshots_only(chunked: PostgresJobs, accounts: Database) -> None:
    chunked.settings = chunked.settings.model_copy(update={"catalog_poll_seconds": 0.001})
    with accounts.connect(autocommit=False) as writing:

        def create_table(_: object) -> None:
            writing.execute("create table elsewhere (id int)")
            accounts.execute("create table later (id int primary key); insert into later values (1)")

        snapshotter = chunked.snapshotter(SnapshotHooks(after_claim=call_once(lambda: create_table(None))))
        thread = threading.Thread(target=snapshotter.run, kwargs={"until_done": True})
        thread.start()
        while not snapshotter.rows or chunked.table("public.accounts").state != DONE:
            assert thread.is_alive()
        assert chunked.table("public.later").state == QUEUED
        # An abandoned attempt leaves no slot: one is being created at most.
        accounts.awaited("select where (select count(*) from pg_replication_slots where temporary) <= 1")
        writing.rollback()
        thread.join(60)
    chunked.settle()
    chunked.assert_equal("public.accounts", "public.later")


def test_a_table_unpublished_before_its_snapshot_is_not_read(
    jobs: PostgresJobs, accounts: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.settle()
    publication, create = jobs.source.publication, replication_slots.create_slot

    def unpublish(_: object) -> None:
        accounts.execute(f'alter table accounts add x int; alter publication "{publication}" drop table accounts')

    once = call_once(lambda: unpublish(None))

    def create_late(*arguments: Any) -> replication_slots.ExportedSnapshot:
        once(None)
        return create(*arguments)

    monkeypatch.setattr(replication_slots, "create_slot", create_late)
    jobs.queue("public.accounts")
    jobs.snapshot()
    assert jobs.table("public.accounts").state == QUEUED
    accounts.execute(f'delete from accounts; alter publication "{publication}" add table accounts')
    jobs.settle()
    jobs.assert_equal("public.accounts")


def test_a_table_unpublished_during_its_snapshot_keeps_its_filter(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, accounts: Database
) -> None:
    accounts.execute("create table aaa (id int primary key); insert into aaa values (2)")
    accounts.execute("create publication part for table aaa, accounts where (id % 2 = 0)")
    jobs = PostgresJobs(
        lake, new_source(publication="part"), chunk_settings(settings, 2 * PAGES, catalog_poll_seconds=5.0)
    )
    unpublish = call_once(lambda: accounts.execute("alter publication part drop table accounts"))
    jobs.snapshot(SnapshotHooks(before_done=unpublish))
    snapshot_rows = lake.spark.sql(
        f"select columns['id'] as id from raw.snapshot_rows where source = '{jobs.source.name}'"
    )
    ids = [int(row.id) for row in snapshot_rows.collect()]
    assert ids
    assert [number for number in ids if number % 2] == []
    jobs.close()


def test_a_waiting_snapshot_worker_can_be_stopped(
    lake: Lake, source: PostgresSource, settings: JobSettings, accounts: Database
) -> None:
    jobs = PostgresJobs(lake, source, chunk_settings(settings, 2 * PAGES, chunk_lease_seconds=0.5))
    with pytest.raises(Killed):
        jobs.snapshot(SnapshotHooks(after_commit=kill))
    accounts.execute("create table other (id int)")
    with accounts.connect(autocommit=False) as busy, ThreadPoolExecutor(1) as pool:
        busy.execute("insert into other values (1)")
        snapshotter = jobs.snapshotter()
        running = pool.submit(snapshotter.run)
        accounts.awaited(
            "select from pg_stat_activity where query like 'CREATE_REPLICATION_SLOT%' and state = 'active'"
        )
        snapshotter.stop()
        running.result(60)
        accounts.awaited("select where not exists (select from pg_replication_slots where temporary)")
    jobs.close()
