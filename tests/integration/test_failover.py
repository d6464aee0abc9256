"""After a failover the stream continues on the new timeline, which does not have the end of the old one."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.devservers.embedded_servers import PostgresServer
from ingest.lake import Lake
from ingest.stream.batch_committer import CommitHooks
from tests.conftest import TEST_SETTINGS, Database
from tests.harness.kill_points import Killed, kill
from tests.harness.postgres_jobs import PostgresJobs

MEBIBYTE = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    postgres = PostgresServer(tmp_path / "postgres", settings=TEST_SETTINGS)
    postgres.start()
    yield postgres
    others = [sibling_folder(postgres, name) for name in ("standby", "lost")]
    postgres.remove()
    for folder in others:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def accounts(server: PostgresServer) -> Database:
    """A table on its own server."""
    database = Database(server.dsn(), "postgres", 18)
    database.execute("create table accounts (id int primary key, owner text, balance numeric)")
    database.execute("insert into accounts select i, 'o' || i, i * 10 from generate_series(1, 100) i")
    return database


@pytest.fixture
def jobs(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, accounts: Database
) -> Iterator[PostgresJobs]:
    postgres_jobs = PostgresJobs(
        lake, new_source(dsn=accounts.dsn), settings.model_copy(update={"commit_max_bytes": MEBIBYTE})
    )
    postgres_jobs.settle()
    yield postgres_jobs
    postgres_jobs.close()


def log_end(database: Database) -> str:
    return str(database.execute("select pg_current_wal_insert_lsn()::text")[0][0])


def sibling_folder(server: PostgresServer, name: str) -> Path:
    return server.data.with_name(f"{server.data.name}-{name}")


def copy_data(server: PostgresServer) -> Path:
    """A copy of the cluster's current data, for a standby; the server starts again."""
    server.stop()
    copy = sibling_folder(server, "standby")
    subprocess.run(["cp", "-a", server.data, copy], check=True)
    server.start()
    return copy


def fail_over(server: PostgresServer, standby: Path, lsn: str) -> None:
    """The standby, which has read the log up to `lsn`, replaces the server."""
    server.stop()
    lost = server.data.rename(sibling_folder(server, "lost"))
    standby.rename(server.data)
    server.settings |= {
        "restore_command": f"cp {lost}/pg_wal/%f %p",
        "recovery_target_lsn": lsn,
        "recovery_target_inclusive": "off",
        "recovery_target_action": "promote",
        "hot_standby": "off",  # The standby accepts connections only after its promotion.
    }
    sign = server.data / "recovery.signal"
    sign.touch()
    os.chown(sign, server.data.stat().st_uid, -1)
    server.start()


def commit_half_transaction(jobs: PostgresJobs, accounts: Database) -> str:
    """The stream is killed with half of a transaction committed to the lake; returns the log position before it."""
    before = log_end(accounts)
    accounts.execute("insert into accounts select i, repeat('x', 500), i from generate_series(1001, 21000) i")
    with pytest.raises(Killed):
        jobs.stream(CommitHooks(after_commit=kill))
    assert jobs.count_events() > 0
    return before


def write_next_segment(accounts: Database) -> None:
    """Writes until the log is past the end of the old timeline: more than a segment of 16 MiB."""
    for balance in (1, 2, 3):
        accounts.execute(f"update accounts set balance = {balance} where id = 1")
        accounts.execute("select pg_switch_wal()")


def assert_only_updates(jobs: PostgresJobs) -> None:
    assert [e["op"] for e in jobs.events()] == ["update"] * 3
    jobs.assert_equal("public.accounts")


def test_half_a_transaction_missing_on_the_new_timeline_is_never_visible(
    jobs: PostgresJobs, server: PostgresServer, accounts: Database
) -> None:
    standby = copy_data(server)
    fail_over(server, standby, commit_half_transaction(jobs, accounts))
    write_next_segment(accounts)
    jobs.settle()
    assert_only_updates(jobs)


def test_half_a_transaction_stays_invisible_after_a_stream_reset(
    jobs: PostgresJobs, server: PostgresServer, accounts: Database
) -> None:
    standby = copy_data(server)
    fail_over(server, standby, commit_half_transaction(jobs, accounts))
    jobs.resnapshot()
    write_next_segment(accounts)
    jobs.settle()
    assert_only_updates(jobs)


def test_a_snapshot_of_changes_missing_on_the_new_timeline_is_invisible(
    jobs: PostgresJobs, server: PostgresServer, accounts: Database
) -> None:
    standby = copy_data(server)
    before = log_end(accounts)
    accounts.execute("update accounts set balance = 999 where id = 1; insert into accounts values (5000, 'ghost', 1)")
    accounts.execute("select pg_switch_wal()")
    jobs.queue("public.accounts")
    jobs.snapshot()
    fail_over(server, standby, before)
    accounts.execute("update accounts set balance = 555 where id = 2")
    write_next_segment(accounts)
    jobs.settle()
    jobs.assert_equal("public.accounts")


def test_a_delayed_writer_deletes_no_events_of_the_new_timeline(
    jobs: PostgresJobs, server: PostgresServer, accounts: Database
) -> None:
    standby = copy_data(server)
    fail_over(server, standby, log_end(accounts))
    second = jobs.writer()
    accounts.execute("update accounts set balance = 777 where id = 3")
    jobs.stream()
    second.run(until=jobs.emit_marker())
    assert [e["op"] for e in jobs.events()] == ["update"]
    jobs.assert_equal("public.accounts")


def test_a_timeline_that_forked_before_the_stored_position_is_refused(
    jobs: PostgresJobs, server: PostgresServer, accounts: Database
) -> None:
    standby = copy_data(server)
    before = log_end(accounts)
    accounts.execute("update accounts set balance = 0")
    jobs.stream()
    fail_over(server, standby, before)
    write_next_segment(accounts)
    with pytest.raises(Failure, match=r"timeline 2 of the cluster forked at .*, before the stored position"):
        jobs.stream()
    jobs.resnapshot()
    jobs.settle()
    jobs.assert_equal("public.accounts")
