"""The embedded servers: what the demo and all other tests stand on."""

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


def test_starts_ready_for_logical_replication(server: PostgresServer) -> None:
    server.start()
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")


def test_keeps_data_and_address_over_a_restart(server: PostgresServer) -> None:
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


def test_recovers_from_a_kill_with_connections_open(server: PostgresServer) -> None:
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


def test_takes_over_from_a_process_that_was_killed(server: PostgresServer) -> None:
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
    left_over = int(done.stdout)
    server.start()
    assert server.pid != left_over
    with psycopg.connect(server.dsn()) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_begins_anew_after_an_initdb_that_was_killed(server: PostgresServer) -> None:
    server.start()
    server.stop()
    (server.folder / "initialised").unlink()
    (server.data / "global" / "pg_control").unlink()
    server.start()
    assert server.pid is not None


def test_refuses_a_folder_that_another_server_runs_on(server: PostgresServer) -> None:
    server.start()
    with pytest.raises(UsageError, match="another process runs a Postgres here"):
        PostgresServer(server.folder).start()


def test_says_why_a_server_did_not_start(folder: Path) -> None:
    server = PostgresServer(folder, settings={"wal_level": "nonsense"})
    try:
        with pytest.raises(Failure, match=r"did not start .*wal_level"):
            server.start()
        assert server.pid is None
    finally:
        server.remove()


@pytest.mark.parametrize("name", ["a folder's name", "comma,name", "long" * 40])
def test_runs_in_folders_with_unusual_names(tmp_path: Path, name: str) -> None:
    server = PostgresServer(tmp_path / name)
    try:
        server.start()
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
    finally:
        server.remove()


def test_leaves_nothing_behind_when_removed(folder: Path) -> None:
    server = PostgresServer(folder)
    server.start()
    places = [server.data, server.sockets]
    server.remove()
    assert not folder.exists()
    assert not any(place.exists() for place in places)


def test_runs_in_a_folder_that_is_private_to_us() -> None:
    with tempfile.TemporaryDirectory() as private:  # for its owner alone
        server = PostgresServer(Path(private) / "server", programs=embedded_postgres())
        try:
            server.start()
            assert server.data.stat().st_uid != 0  # also when we are root
        finally:
            server.remove()


@pytest.mark.both_versions
def test_each_test_has_a_database_of_its_own(database: Database) -> None:
    assert database.execute("select current_database()") == [(database.name,)]
    database.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [database.name])


def test_mongo_keeps_its_data_over_a_kill_and_streams_changes(folder: Path) -> None:
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
