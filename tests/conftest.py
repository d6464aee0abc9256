"""Postgres servers for the tests: one per session, and one database per test.

`--postgres 18|15|all` selects versions. By default every test runs on the embedded server; tests marked `both_versions`
also run on Debian's server if it is installed. TIDEMARK_TEST_POSTGRES_DSN selects another server instead (its user
needs the rights to create databases and replication slots).
"""

import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ingest.devservers.embedded_servers import PostgresServer, installed_postgres
from ingest.sources.postgres.slots import replication_slots
from tests.harness.core_tests import is_core

# The duration of an example depends on the load of the machine.
hypothesis.settings.register_profile(
    "no_deadline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no_deadline")

DSN_VARIABLE = "TIDEMARK_TEST_POSTGRES_DSN"
EMBEDDED = "18"
# No fsync: the tests kill processes, not machines.
TEST_SETTINGS = {"fsync": "off", "max_connections": "200", "log_min_messages": "warning"}


@dataclass(frozen=True)
class Database:
    """The database of one test: connection string (superuser), name, the server's major version."""

    dsn: str
    name: str
    version: int

    @contextlib.contextmanager
    def connect(self, *, autocommit: bool = True) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """A connection, closed at the end of the context."""
        with psycopg.connect(self.dsn, autocommit=autocommit) as connection:
            yield connection

    def execute(
        self, query: str | sql.SQL | sql.Composed, parameters: Sequence[Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement (of several, without parameters), executed in a new connection."""
        with self.connect() as connection:
            statement = query.encode() if isinstance(query, str) else query
            cursor = connection.execute(statement, parameters)
            # Not by the cursor's description: rows of `select from` have no columns.
            has_rows = cursor.pgresult is not None and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK
            return cursor.fetchall() if has_rows else []

    def slot_released(self, slot: str) -> None:
        """Waits until a replication slot has no reader: a server notices the end of a reader late."""
        with self.connect() as connection:
            replication_slots.wait_until_free(connection, slot, self.name)

    def lock_awaited(self, table: str) -> None:
        """Waits until a session waits for a lock on `table`."""
        self.awaited("select from pg_locks where relation = %s::regclass and not granted", [table])

    def awaited(self, query: str, parameters: Sequence[Any] | None = None, seconds: float = 60) -> None:
        """Waits until a query returns rows, for `seconds` at most."""
        deadline = time.monotonic() + seconds
        while not self.execute(query, parameters):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def drop_slot(self, slot: str) -> None:
        """Drops a replication slot whose reader has ended."""
        self.slot_released(slot)
        self.execute("select pg_drop_replication_slot(%s)", [slot])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgres",
        default="default",
        help="Postgres version to test on: 18 (embedded), 15 (Debian's), or all that are installed",
    )
    parser.addoption("--seeds", default="1-2", help="Seeds of the random tests: 17, or 1-200")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_core(item.nodeid):
            item.add_marker(pytest.mark.core)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "postgres_server" not in metafunc.fixturenames:
        return
    requested = metafunc.config.getoption("--postgres")
    on_both = metafunc.definition.get_closest_marker("both_versions") is not None
    metafunc.parametrize("postgres_server", _versions(requested, on_both), indirect=True, scope="session")


def _versions(requested: str, on_both: bool) -> list[str]:
    if os.environ.get(DSN_VARIABLE):
        return ["dsn"]
    available = [EMBEDDED, *map(str, sorted(installed_postgres(), reverse=True))]
    available = list(dict.fromkeys(available))
    if requested == "default":
        return available if on_both else [EMBEDDED]
    if requested == "all":
        return available
    if requested not in available:
        raise pytest.UsageError(f"Postgres {requested} is not installed, only {', '.join(available)}")
    return [requested]


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of a server of the requested version with wal_level=logical."""
    if request.param == "dsn":
        yield os.environ[DSN_VARIABLE]
        return
    programs = None if request.param == EMBEDDED else installed_postgres()[int(request.param)]
    server = PostgresServer(Path(tempfile.mkdtemp()) / "postgres", programs, TEST_SETTINGS)
    try:
        server.start()
        yield server.dsn()
    finally:
        server.remove()
        server.folder.parent.rmdir()


@pytest.fixture
def database(postgres_server: str) -> Iterator[Database]:
    """A new database, dropped afterwards together with its replication slots."""
    name = f"tidemark_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        version = admin.info.server_version // 10000
    yield Database(make_conninfo(postgres_server, dbname=name), name, version)
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        _drop_slots(admin, name)
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _drop_slots(admin: psycopg.Connection[Any], database: str) -> None:
    """Drops the slots of `database` and ends their readers."""
    own_slots = "from pg_replication_slots where database = %s and not temporary"
    while slots := admin.execute(f"select slot_name, active_pid {own_slots}", [database]).fetchall():
        for name, reader in slots:
            if reader is not None:
                admin.execute("select pg_terminate_backend(%s, 10000)", [reader])
            with contextlib.suppress(psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
                admin.execute("select pg_drop_replication_slot(%s)", [name])
