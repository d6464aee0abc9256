"""The stream of a Postgres source: what it commits, where it resumes after a kill, and which errors stop it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.position import current_epochs, parse_lsn
from ingest.sources.postgres.slots import replication_slots
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.open_batch import Batch
from tests.conftest import Database
from tests.harness.kill_points import Killed, call_once, kill
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import wait_until

MEBIBYTE = 1 << 20


@pytest.fixture
def accounts(database: Database) -> Database:
    database.execute(
        "create table accounts (id int primary key, owner text, balance numeric);"
        "insert into accounts select i, 'o' || i, i * 10 from generate_series(1, 100) i"
    )
    return database


def slot_row(database: Database, slot: str) -> dict[str, str]:
    ((row,),) = database.execute("select to_jsonb(s) from pg_replication_slots s where slot_name = %s", [slot])
    return dict(row)


# What is committed


def test_inserts_updates_and_deletes_are_committed(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    accounts.execute("insert into accounts values (101, null, 1), (102, '', 2)")
    accounts.execute("update accounts set balance = balance + 1 where id <= 3")
    accounts.execute("delete from accounts where id = 4")
    jobs.settle()
    events = jobs.events()
    assert [e["op"] for e in events] == ["insert"] * 2 + ["update"] * 3 + ["delete"]
    assert [e["columns"]["owner"] for e in events[:2]] == [None, ""]
    jobs.assert_equal("public.accounts")


def test_changes_of_one_row_in_one_transaction_are_kept_in_order(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    with accounts.connect(autocommit=False) as connection:
        for n in range(8):
            connection.execute("update accounts set balance = %s where id = 1", [n])
    jobs.stream()
    events = jobs.events()
    assert [e["columns"]["balance"] for e in events] == [str(n) for n in range(8)]
    assert [e["commit_index"] for e in events] == list(range(8))
    assert len({e["commit_lsn"] for e in events}) == 1


def test_transactions_are_in_commit_order(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    with accounts.connect(autocommit=False) as first, accounts.connect(autocommit=False) as second:
        first.execute("update accounts set owner = 'first' where id = 1")
        second.execute("update accounts set owner = 'second' where id = 2")
        second.commit()
        first.commit()
    jobs.stream()
    assert [e["columns"]["owner"] for e in jobs.events()] == ["second", "first"]


def test_a_rolled_back_transaction_leaves_no_events(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    with accounts.connect(autocommit=False) as connection:
        connection.execute("update accounts set owner = 'x'")
        connection.rollback()
        connection.execute("update accounts set owner = 'kept' where id = 1")
        connection.execute("savepoint s")
        connection.execute("update accounts set owner = 'undone' where id = 2")
        connection.execute("rollback to savepoint s")
        connection.execute("update accounts set owner = 'kept' where id = 3")
    jobs.stream()
    events = jobs.events()
    assert [e["columns"]["owner"] for e in events] == ["kept", "kept"]
    assert [e["commit_index"] for e in events] == [0, 1]


def test_several_rows_under_one_key_in_one_transaction_are_kept(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    with accounts.connect(autocommit=False) as connection:
        connection.execute("insert into accounts values (201, 'in', 1)")
        connection.execute("delete from accounts where id = 201")
        connection.execute("delete from accounts where id = 1")
        connection.execute("insert into accounts values (1, 'again', 1)")
        connection.execute("delete from accounts where id = 2")
        connection.execute("insert into accounts values (2, 'again', 1)")
        connection.execute("delete from accounts where id = 2")
    jobs.settle()
    jobs.assert_equal("public.accounts")


def test_changed_swapped_and_chained_keys_end_as_in_the_source(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    accounts.execute("update accounts set id = -1 where id = 1")
    with accounts.connect(autocommit=False) as connection:
        connection.execute("update accounts set id = -2 where id = 2")
        connection.execute("update accounts set id = 2 where id = 3")
        connection.execute("update accounts set id = 3 where id = -2")
    accounts.execute("delete from accounts where id = 10")
    accounts.execute("update accounts set id = 10 where id = 11")
    for old, new in ((20, 120), (120, 220), (220, 320)):
        accounts.execute("update accounts set id = %s where id = %s", [new, old])
    jobs.settle()
    moved = [e for e in jobs.events() if e["old_row_key"]]
    assert [(e["old_row_key"], e["row_key"]) for e in moved[-3:]] == [
        ('["20"]', '["120"]'),
        ('["120"]', '["220"]'),
        ('["220"]', '["320"]'),
    ]
    jobs.assert_equal("public.accounts")


def test_truncate_is_an_event_per_table(jobs: PostgresJobs, accounts: Database) -> None:
    accounts.execute("create table notes (id int primary key, account int references accounts)")
    accounts.execute("insert into notes values (1, 1)")
    jobs.settle()
    with accounts.connect(autocommit=False) as connection:
        connection.execute("truncate accounts cascade")
        connection.execute("insert into accounts values (1, 'new', 0)")
    jobs.stream()
    truncates = [e for e in jobs.events() if e["op"] == "truncate"]
    assert {e["table_name"] for e in truncates} == {"public.accounts", "public.notes"}
    assert all(e["row_key"] is None and e["columns"] is None for e in truncates)
    jobs.assert_equal("public.accounts", "public.notes")


def test_a_transaction_larger_than_a_batch_becomes_visible_at_once(
    lake: Lake, source: PostgresSource, settings: JobSettings, accounts: Database
) -> None:
    small = settings.model_copy(update={"commit_max_bytes": MEBIBYTE})
    jobs = PostgresJobs(lake, source, small)
    jobs.open()
    accounts.execute("insert into accounts select i, repeat('x', 500), i from generate_series(1001, 21000) i")
    seen: list[tuple[int, int]] = []

    def count_visible(batch: Batch) -> None:
        seen.append((batch.rows, len(jobs.events())))

    progress = jobs.stream(CommitHooks(after_commit=count_visible))
    assert progress.commits > 1  # waiting batches are merged
    assert {visible for _, visible in seen} == {0}
    events = jobs.events()
    assert [e["commit_index"] for e in events] == list(range(20000))
    jobs.close()


# Where it resumes


@pytest.mark.parametrize("place", ["before_commit", "after_commit", "before_store", "after_store"])
def test_after_a_kill_each_event_comes_again_under_the_same_key(
    jobs: PostgresJobs, accounts: Database, place: str
) -> None:
    jobs.open()
    accounts.execute("update accounts set balance = balance + 1 where id <= 50")
    with pytest.raises(Killed):
        jobs.stream(CommitHooks(**{place: kill}))
    accounts.execute("update accounts set balance = balance + 1 where id <= 50")
    jobs.settle()
    assert len(jobs.events()) == 100
    jobs.assert_equal("public.accounts")


@pytest.mark.parametrize(
    ("key", "statement"),
    [("", "alter table things add primary key (id)"), ("primary key", "drop table things")],
    ids=["key added", "table dropped"],
)
def test_a_key_changed_after_a_kill_moves_no_event(
    jobs: PostgresJobs, database: Database, key: str, statement: str
) -> None:
    database.execute(
        f"create table things (id int {key} not null, n int); insert into things values (1, 0), (2, 0);"
        "alter table things replica identity full;"
        "create table notes (note text); alter table notes replica identity full"
    )
    jobs.settle()
    database.execute("begin; update things set n = 1; insert into notes values ('a'); commit")
    with pytest.raises(Killed):
        jobs.stream(CommitHooks(after_commit=kill))
    database.execute(statement)
    jobs.settle()
    pairs = (
        "select count(*), count(distinct commit_lsn, commit_index) from raw.wal_events "
        f"where source = '{jobs.source.name}' and table_name = 'public.notes'"
    )
    assert tuple(jobs.lake.spark.sql(pairs).collect()[0]) == (2, 1)


def test_a_publication_dropped_during_the_stream_ends_it(jobs: PostgresJobs, accounts: Database) -> None:
    """From version 18 on the server continues without an error."""
    jobs.settle()
    accounts.execute("update accounts set balance = 0")

    def drop() -> None:
        accounts.execute(f"drop publication {jobs.source.publication}")
        accounts.execute("update accounts set balance = 1")

    with pytest.raises(Failure, match=r"publication.*(was dropped|does not exist)"):
        jobs.writer(CommitHooks(after_commit=call_once(drop))).run()


def test_a_slot_can_have_any_name_that_the_server_allows(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, accounts: Database
) -> None:
    source = new_source()
    jobs = PostgresJobs(lake, source.model_copy(update={"slot": f"1{source.slot}"}), settings)
    jobs.settle()
    accounts.execute("update accounts set balance = 0")
    jobs.settle()
    jobs.assert_equal("public.accounts")
    jobs.close()


def test_a_half_committed_transaction_comes_again_after_a_kill(
    lake: Lake, source: PostgresSource, settings: JobSettings, accounts: Database
) -> None:
    small = settings.model_copy(update={"commit_max_bytes": MEBIBYTE})
    jobs = PostgresJobs(lake, source, small)
    jobs.open()
    accounts.execute("insert into accounts select i, repeat('x', 500), i from generate_series(1001, 21000) i")
    with pytest.raises(Killed):
        jobs.stream(CommitHooks(after_commit=kill))
    assert jobs.events() == []
    assert jobs.count_events() > 0
    jobs.settle()
    assert len(jobs.events()) == 20000
    jobs.assert_equal("public.accounts")
    jobs.close()


def test_half_a_transaction_of_a_lost_slot_is_never_visible(
    lake: Lake, source: PostgresSource, settings: JobSettings, accounts: Database
) -> None:
    small = settings.model_copy(update={"commit_max_bytes": MEBIBYTE})
    jobs = PostgresJobs(lake, source, small)
    jobs.settle()
    accounts.execute("insert into accounts select i, repeat('x', 500), i from generate_series(1001, 21000) i")
    with pytest.raises(Killed):
        jobs.stream(CommitHooks(after_commit=kill))
    accounts.drop_slot(source.slot)
    jobs.resnapshot()
    accounts.execute("delete from accounts where id > 1000")
    jobs.settle()
    assert all(e["op"] == "delete" for e in jobs.events())
    jobs.assert_equal("public.accounts")
    jobs.close()


@pytest.mark.both_versions
def test_after_a_kill_before_the_first_position_the_slot_is_recreated(
    jobs: PostgresJobs, accounts: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits for open transactions older than the publication: the server can't decode them."""
    monkeypatch.setattr("ingest.sources.postgres.slots.replication_slots._REPORT_SECONDS", 0.1)
    accounts.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [jobs.source.slot])
    left_by_the_dead = parse_lsn(slot_row(accounts, jobs.source.slot)["confirmed_flush_lsn"])
    with accounts.connect(autocommit=False) as connection, ThreadPoolExecutor() as pool:
        connection.execute("update accounts set balance = -1 where id = 1")
        opening = pool.submit(jobs.open)
        while "waits for open transactions: pid" not in caplog.text:
            assert not opening.done()
        connection.execute("update accounts set balance = -2 where id = 2")
        connection.commit()
        opening.result(60)
    assert "was of no writer of this lake" in caplog.text
    assert parse_lsn(slot_row(accounts, jobs.source.slot)["confirmed_flush_lsn"]) > left_by_the_dead
    accounts.execute("update accounts set balance = 0")
    jobs.settle()
    assert len(jobs.events()) == 100
    jobs.assert_equal("public.accounts")


def test_only_stored_positions_are_acknowledged(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    before = slot_row(accounts, jobs.source.slot)["confirmed_flush_lsn"]
    accounts.execute("update accounts set balance = 1")
    with pytest.raises(Killed):
        jobs.stream(CommitHooks(before_store=kill))
    accounts.slot_released(jobs.source.slot)
    assert slot_row(accounts, jobs.source.slot)["confirmed_flush_lsn"] == before
    progress = jobs.stream()
    accounts.slot_released(jobs.source.slot)
    confirmed = parse_lsn(slot_row(accounts, jobs.source.slot)["confirmed_flush_lsn"])
    assert confirmed == progress.position.position


def test_an_idle_database_advances_the_slot(jobs: PostgresJobs, accounts: Database) -> None:
    """Another database writes to the log that they share: only keepalives tell the stream of it."""
    jobs.stream()
    busy = replace(accounts, dsn=make_conninfo(accounts.dsn, dbname="postgres"))
    with jobs.streaming():
        ((target,),) = busy.execute("select pg_logical_emit_message(false, 'test', 'elsewhere')")
        reached = "select from pg_replication_slots where slot_name = %s and confirmed_flush_lsn >= %s"
        accounts.awaited(reached, [jobs.source.slot, target])
    assert jobs.count_events() == 0


def test_a_cut_connection_is_opened_again(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.open()
    cut = call_once(
        lambda: accounts.execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s",
            [jobs.source.slot],
        )
    )
    accounts.execute("update accounts set balance = 1")
    reached = threading.Event()
    with jobs.streaming(CommitHooks(before_commit=cut, after_store=lambda _: reached.set())) as writer:
        assert reached.wait(60)
        accounts.execute("update accounts set balance = 2")
        target = jobs.emit_marker()
        wait_until(lambda: writer.progress.position.position > target)
    jobs.settle()
    assert len(jobs.events()) == 200
    jobs.assert_equal("public.accounts")


def test_a_connection_that_only_the_client_lost_is_opened_again(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, accounts: Database
) -> None:
    """The server would keep the old connection, which blocks the slot."""
    accounts.execute(f"alter database {accounts.name} set wal_sender_timeout = 0")
    proxy = TcpProxy(accounts)
    proxy.start()
    dsn = psycopg.conninfo.make_conninfo(accounts.dsn, host="127.0.0.1", port=proxy.port)
    jobs = PostgresJobs(lake, new_source(dsn=dsn), settings)
    jobs.settle()
    stored = threading.Event()
    with jobs.streaming(CommitHooks(after_store=lambda _: stored.set())) as writer:
        accounts.execute("update accounts set balance = 1")
        assert stored.wait(60)
        proxy.cut()
        accounts.execute("update accounts set balance = 2")
        target = parse_lsn(accounts.execute("select pg_logical_emit_message(true, 'test', '')::text")[0][0])
        while writer.progress.position.position <= target:
            stored.clear()
            assert stored.wait(60)
    assert len(jobs.events()) == 200
    proxy.close()
    jobs.close()


def test_a_slow_commit_does_not_block_status_messages(
    jobs: PostgresJobs, accounts: Database, postgres_server: str
) -> None:
    """Without status messages the server ends a stream after wal_sender_timeout."""
    jobs.open()
    dsn = jobs.source.dsn.get_secret_value()
    name = accounts.name
    accounts.execute(f"alter database {name} set wal_sender_timeout = '1s'")
    accounts.execute("update accounts set balance = 1")
    pids: set[int] = set()

    def commit_slowly(_: Batch) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _tenth in range(30):
                row = connection.execute(
                    "select active_pid, pg_sleep(0.1) from pg_replication_slots where slot_name = %s",
                    [jobs.source.slot],
                ).fetchone()
                assert row is not None
                pids.add(row[0])

    jobs.stream(CommitHooks(before_commit=commit_slowly))
    assert len(pids) == 1
    assert None not in pids


# Errors that stop it


def test_a_lost_slot_is_refused(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.stream()
    accounts.drop_slot(jobs.source.slot)
    with pytest.raises(Failure, match="slot does not exist.*resnapshot --all"):
        jobs.stream()


def test_a_slot_advanced_by_another_process_is_refused(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.stream()
    accounts.execute("update accounts set balance = 1")
    accounts.slot_released(jobs.source.slot)
    accounts.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", [jobs.source.slot])
    with pytest.raises(Failure, match="another client has advanced the slot.*resnapshot --all"):
        jobs.stream()


def test_a_slot_of_another_plugin_is_refused(jobs: PostgresJobs, accounts: Database) -> None:
    accounts.execute("select pg_create_physical_replication_slot(%s)", [jobs.source.slot])
    try:
        with pytest.raises(Failure, match="not pgoutput"):
            jobs.stream()
    finally:
        accounts.drop_slot(jobs.source.slot)


def test_a_slot_in_use_is_refused(jobs: PostgresJobs, accounts: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.open()
    started = threading.Event()
    accounts.execute("update accounts set balance = 1")
    with jobs.streaming(CommitHooks(after_store=lambda _: started.set())):
        assert started.wait(60)
        monkeypatch.setattr(replication_slots, "RELEASE_SECONDS", 0.5)
        with pytest.raises(Failure, match="in use by process"):
            jobs.stream()


def test_another_cluster_behind_the_dsn_is_refused(jobs: PostgresJobs, accounts: Database) -> None:
    position = jobs.stream().position
    other_system = {**position.__dict__, "system_id": "1", "start_position": position.position + 1}
    jobs.lake.positions.store(type(position)(**{**other_system, "position": position.position + 1}))
    accounts.slot_released(jobs.source.slot)

    def state() -> object:
        name = jobs.source.name
        return jobs.lake.tables.read(name), jobs.lake.positions.read(name), slot_row(accounts, jobs.source.slot)

    before = state()
    with pytest.raises(Failure, match="another database cluster"):
        jobs.stream()
    assert state() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dbname": "nowhere"}, "does not exist"),
        ({"user": "nobody_here"}, "does not exist"),
        ({"host": "/nowhere"}, "can't connect"),
    ],
)
def test_a_wrong_dsn_is_a_one_line_error(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    database: Database,
    change: dict[str, str],
    message: str,
) -> None:
    dsn = psycopg.conninfo.make_conninfo(database.dsn, password="hidden", **change)
    with pytest.raises(Failure, match=message) as failure:
        PostgresJobs(lake, new_source(dsn=dsn), settings).stream()
    assert "\n" not in str(failure.value)
    assert "hidden" not in str(failure.value)


def test_a_server_restored_to_an_earlier_position_is_refused(
    jobs: PostgresJobs, accounts: Database, lake: Lake
) -> None:
    jobs.settle()
    stored = current_epochs(lake.positions.read(jobs.source.name))[jobs.source.name, 1]
    lake.positions.store(stored.advanced_to(stored.position + (1 << 40)))
    with pytest.raises(Failure, match="the server's log is at .*, behind the stored position"):
        jobs.stream()


def test_resnapshot_all_does_not_take_the_slot_of_another_source(jobs: PostgresJobs, accounts: Database) -> None:
    jobs.settle()
    slot = jobs.source.slot
    accounts.drop_slot(slot)
    accounts.execute("select pg_create_logical_replication_slot(%s, 'test_decoding')", [slot])
    with pytest.raises(Failure, match="the replication slot uses test_decoding"):
        jobs.resnapshot()
    assert slot_row(accounts, slot)["plugin"] == "test_decoding"
