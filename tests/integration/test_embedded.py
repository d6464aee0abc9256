"""The embedded servers that the demo and all other tests use."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymongo
import pytest

from ingest.common.errors import Failure, UsageError
from ingest.devservers.embedded_servers import MongoServer, PostgresServer, embedded_postgres
from tests.conftest import Database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "server"


@pytest.fixture
def server(folder: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(folder, settings={"fsync": "off"})
    yield server
    server.remove()


def test_a_new_server_is_ready_for_logical_replication(server: PostgresServer) -> None:
    server.start()
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")


def test_a_restart_keeps_data_and_address(server: PostgresServer) -> None:
    server.start()
    dsn = server.dsn()
    with psycopg.connect(dsn) as connection:
        connection.execute("create table t as select 1 as a")
    server.stop()
    assert server.pid is None
    server.start()
    assert server.dsn() == dsn
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select a from t").fetchone() == (1,)


def test_a_server_killed_with_open_connections_recovers(server: PostgresServer) -> None:
    server.start()
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("create table t as select 1 as a")
    with psycopg.connect(server.dsn()) as left_open:
        server.kill()
        server.start()
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("select 1")
        left_open.close()
    with psycopg.connect(server.dsn()) as connection:
        assert connection.execute("select a from t").fetchone() == (1,)


def test_a_server_of_a_killed_process_is_taken_over(server: PostgresServer) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from typing import Any
from ingest.devservers.embedded_servers import PostgresServer
server = PostgresServer(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(server.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    leftover_pid = int(done.stdout)
    server.start()
    assert server.pid != leftover_pid
    with psycopg.connect(server.dsn()) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_killed_initdb_is_repeated(server: PostgresServer) -> None:
    server.start()
    server.stop()
    (server.folder / "initialised").unlink()
    (server.data / "global" / "pg_control").unlink()
    server.start()
    assert server.pid is not None


def test_a_folder_in_use_by_another_server_is_refused(server: PostgresServer) -> None:
    server.start()
    with pytest.raises(UsageError, match="another process runs a Postgres here"):
        PostgresServer(server.folder).start()


def test_a_failed_start_is_reported_with_its_cause(folder: Path) -> None:
    server = PostgresServer(folder, settings={"wal_level": "nonsense"})
    try:
        with pytest.raises(Failure, match=r"did not start .*wal_level"):
            server.start()
        assert server.pid is None
    finally:
        server.remove()


@pytest.mark.parametrize("name", ["a folder's name", "comma,name", "long" * 40])
def test_a_server_runs_in_folders_with_unusual_names(tmp_path: Path, name: str) -> None:
    server = PostgresServer(tmp_path / name)
    try:
        server.start()
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
    finally:
        server.remove()


def test_a_removed_server_leaves_no_files_or_processes(folder: Path) -> None:
    server = PostgresServer(folder)
    server.start()
    places = [server.data, server.sockets]
    server.remove()
    assert not folder.exists()
    assert not any(place.exists() for place in places)


def test_a_server_runs_in_a_folder_that_only_we_can_read() -> None:
    with tempfile.TemporaryDirectory() as private:  # readable by its owner only
        server = PostgresServer(Path(private) / "server", programs=embedded_postgres())
        try:
            server.start()
            assert server.data.stat().st_uid != 0  # even if we are root
        finally:
            server.remove()


@pytest.mark.both_versions
def test_each_test_has_its_own_database(database: Database) -> None:
    assert database.execute("select current_database()") == [(database.name,)]
    database.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [database.name])


def test_mongodb_keeps_its_data_over_a_kill_and_streams_changes(folder: Path) -> None:
    server = MongoServer(folder)
    with server:
        with (
            pymongo.MongoClient[dict[str, Any]](server.uri) as client,
            client.db.things.watch() as stream,
        ):
            client.db.things.insert_one({"x": 1})
            assert stream.next()["operationType"] == "insert"
        server.kill()
        server.start()
        with pymongo.MongoClient[dict[str, Any]](server.uri) as client:
            assert client.db.things.count_documents({}) == 1
    assert server.pid is None
