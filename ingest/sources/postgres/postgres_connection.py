"""Connections to a Postgres source. All use the same session settings, so that COPY and the stream print values alike.

A connection that can't be opened is a Failure of one line that names host and database, never the DSN. TLS and all
other libpq options come from the DSN.
"""

import os
import select
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ingest.common.errors import Failure, Unavailable, one_line, redact

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# Defaults of a role or a database must neither change the text of a value nor end a long read.
SESSION_SETTINGS = MappingProxyType(
    {
        "datestyle": "ISO",
        "timezone": "UTC",
        "intervalstyle": "postgres",
        "bytea_output": "hex",
        "extra_float_digits": "1",
        "search_path": "pg_catalog",
        "lc_monetary": "C",
        "xmloption": "content",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
        "row_security": "off",
        "quote_all_identifiers": "off",
    }
)
# The oldest supported server version: pgoutput's messages, ctid range scans, publication row filters.
OLDEST_SERVER = 150000


def connect(dsn: str, *, replication: bool = False, connect_timeout_seconds: float = 10.0) -> Connection:
    """A connection in autocommit mode. replication: a replication connection to the DSN's database.

    Raises CannotConnect; Failure if the server is too old.
    """
    options_of_dsn = conninfo_to_dict(dsn)
    options = " ".join(f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())
    extra: dict[str, Any] = {
        "options": f"{options_of_dsn.get('options', '') or ''} {options}".strip(),
        "client_encoding": "UTF8",
        "application_name": options_of_dsn.get("application_name") or "tidemark",
        "connect_timeout": options_of_dsn.get("connect_timeout") or max(2, round(connect_timeout_seconds)),
        "keepalives_idle": options_of_dsn.get("keepalives_idle") or 30,
        "keepalives_interval": options_of_dsn.get("keepalives_interval") or 10,
        "keepalives_count": options_of_dsn.get("keepalives_count") or 3,
        # TCP sends no keepalives while sent data, such as a status message, is unacknowledged.
        "tcp_user_timeout": options_of_dsn.get("tcp_user_timeout") or 60_000,
        # By default libpq encrypts with GSSAPI if it finds a Kerberos ticket, without reporting it.
        "gssencmode": options_of_dsn.get("gssencmode") or os.environ.get("PGGSSENCMODE") or "disable",
    }
    if replication:
        extra["replication"] = "database"
    try:
        connection = psycopg.connect(make_conninfo(dsn, **extra), autocommit=True)
    except psycopg.Error as error:
        raise connection_error(dsn, error) from None
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        connection.close()
        raise Failure(
            f"the server is PostgreSQL {version // 10000}", describe_endpoint(dsn), "Tidemark needs 15 or later"
        )
    # PGDATESTYLE and PGTZ come after the options.
    run_command(connection, f"SET datestyle = '{SESSION_SETTINGS['datestyle']}'")
    run_command(connection, f"SET timezone = '{SESSION_SETTINGS['timezone']}'")
    if version >= 170000:  # older servers reject it in the options
        run_command(connection, "SET transaction_timeout = 0")
    return connection


# Catalog queries wait this long for the lock of a table that is being altered; then they report it and retry.
LOCK_TIMEOUT = "5s"
_LOCKED = """
SELECT string_agg(DISTINCT format('%I.%I (by process %s of the server)', n.nspname, c.relname, l.pid), ', ')
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE l.granted AND l.mode = 'AccessExclusiveLock' AND c.relkind IN ('r', 'p')
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@contextmanager
def with_lock_timeout(connection: Connection) -> Iterator[None]:
    """Within it, a statement that waits for a table's lock longer than LOCK_TIMEOUT raises LockNotAvailable."""
    connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("RESET lock_timeout")


def describe_locked_tables(connection: Connection) -> str:
    """The tables under an exclusive lock and the processes that hold it, for a message."""
    ((names,),) = connection.execute(_LOCKED).fetchall()
    return f"tables are locked: {names or 'none any more'}"


@contextmanager
def fail_if_locked(connection: Connection, source: str) -> Iterator[None]:
    """Within it, a statement that waits for a table's lock longer than LOCK_TIMEOUT raises a Failure."""
    try:
        with with_lock_timeout(connection):
            yield
    except psycopg.errors.LockNotAvailable:
        what = describe_locked_tables(connection)
        raise Failure(what, f"source {source}", "Repeat the command when the locks are released") from None


class LazyConnection:
    """A connection for catalog queries, opened on first use and reopened after it was lost. For one thread.

    A query that waits for a table's lock longer than LOCK_TIMEOUT raises psycopg's LockNotAvailable. check: called with
    each new connection; if it raises, the connection is closed.
    """

    def __init__(self, dsn: str, connect_timeout_seconds: float, check: Callable[[Connection], None]) -> None:
        self._dsn = dsn
        self._seconds = connect_timeout_seconds
        self._check = check
        self._connection: Connection | None = None

    def get(self) -> Connection:
        """The connection, in autocommit mode. Raises the errors of `connect` and `check`."""
        if self._connection is None or self._connection.closed:
            connection = connect(self._dsn, connect_timeout_seconds=self._seconds)
            try:
                self._check(connection)
                connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def describe_error(self, error: Exception) -> str:
        """A catalog query's error for a message. For a lock timeout: which tables are locked, and by which process."""
        if isinstance(error, psycopg.errors.LockNotAvailable):
            with suppress(psycopg.Error, CannotConnect):  # the connection may be lost by now
                return describe_locked_tables(self.get())
        return one_line(str(error))

    def close(self) -> None:
        """Close the connection if it is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def describe_endpoint(dsn: str) -> str:
    """Host, port and database of a DSN, for messages."""
    options_of_dsn = conninfo_to_dict(dsn)
    host = options_of_dsn.get("host") or options_of_dsn.get("hostaddr") or "local socket"
    port = options_of_dsn.get("port")
    return f"{host}{f':{port}' if port else ''}/{options_of_dsn.get('dbname') or options_of_dsn.get('user') or ''}"


class CannotConnect(Unavailable):
    """The source can't be reached, or rejects the connection, at present."""


_HINTS = (
    (
        ("password authentication failed", "no password supplied"),
        "Check user and password in the DSN",
    ),
    (("pg_hba.conf",), "Allow this host and user in the server's pg_hba.conf"),
    (("does not exist",), "Check the names in the DSN"),
    (("could not translate host name", "Name or service not known"), "Check the host in the DSN"),
    (
        ("must be superuser or replication role", "permission denied to start WAL sender"),
        "Give the role the REPLICATION attribute: ALTER ROLE ... REPLICATION",
    ),
    (("too many", "remaining connection slots"), "Raise max_connections or max_wal_senders"),
    (("starting up", "shutting down", "recovery"), "Wait until the server accepts connections"),
    (("SSL", "certificate"), "Check the DSN's ssl settings"),
)


def connection_error(dsn: str, error: psycopg.Error) -> CannotConnect:
    """The CannotConnect for an error of `psycopg.connect`, without the DSN's secrets."""
    lines = [line for line in redact(str(error)).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    # libpq's text begins with host and port, which `describe_endpoint` names.
    text = text.rpartition("FATAL:")[2].strip() or text
    hints = (hint for phrases, hint in _HINTS if any(phrase in text for phrase in phrases))
    return CannotConnect(
        f"can't connect to Postgres ({text.removeprefix('connection failed: ')})",
        describe_endpoint(dsn),
        next(hints, "Check that the server is running and that the DSN is correct"),
    )


def run_command(
    connection: Connection,
    text: str,
    waiting: Callable[[], None] | None = None,
    poll_seconds: float = 1.0,
) -> list[dict[str, str | None]]:
    """The rows of one replication command, by column.

    waiting: called every `poll_seconds` until the server has answered; if it raises, the command is abandoned. Raises
    psycopg's error for an error of the server.
    """
    pgconn = connection.pgconn
    pgconn.send_query(text.encode())
    while pgconn.is_busy():
        if not select.select([pgconn.socket], [], [], poll_seconds)[0]:
            if waiting:
                waiting()
            continue
        pgconn.consume_input()
    rows: list[dict[str, str | None]] = []
    error: psycopg.Error | None = None
    while (result := pgconn.get_result()) is not None:  # read all results, so that another command may follow
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            error = _error_of(result)
            continue
        names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        rows += [_decode_row(result, number, names) for number in range(result.ntuples)]
    if error is not None:
        raise error
    return rows


def _decode_row(result: Any, number: int, names: Sequence[str]) -> dict[str, str | None]:
    values = (result.get_value(number, column) for column in range(len(names)))
    return {name: None if value is None else value.decode() for name, value in zip(names, values, strict=True)}


# Errors of a catalog query while other sessions alter the catalog, such as an internal error for a table that was
# dropped meanwhile: the query is retried.
TRANSIENT_ERRORS = (
    psycopg.errors.InternalError_,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.UndefinedObject,
    psycopg.errors.UndefinedTable,
)


def is_connection_lost(error: psycopg.Error) -> bool:
    """Whether the connection was lost or the server is shutting down, so that a retry may succeed."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08").startswith(("57P", "08"))


def copy_out(connection: Connection, statement: str) -> Generator[bytes, None, None]:
    """The output of a COPY TO STDOUT, one row at a time.

    Each row is a copy: keeping thousands of libpq's buffers takes twice as long. Raises psycopg's error for an error of
    the server.
    """
    pgconn = connection.pgconn
    pgconn.send_query(statement.encode())
    _expect(pgconn, pq.ExecStatus.COPY_OUT)
    get, socket = pgconn.get_copy_data, [pgconn.socket]
    while True:
        length, data = get(1)
        if length > 0:
            yield bytes(data)
        elif length == 0:
            select.select(socket, [], [])
            pgconn.consume_input()
        else:
            break
    _expect(pgconn, pq.ExecStatus.COMMAND_OK)
    while pgconn.get_result() is not None:
        pass


def _expect(pgconn: pq.abc.PGconn, status: pq.ExecStatus) -> None:
    while pgconn.is_busy():
        select.select([pgconn.socket], [], [])
        pgconn.consume_input()
    result = pgconn.get_result()
    if result is None or result.status != status:
        while result is not None and pgconn.get_result() is not None:
            pass
        if result is None:
            raise psycopg.OperationalError("the server did not answer")
        raise _error_of(result)


def _error_of(result: pq.abc.PGresult) -> psycopg.Error:
    """The error of a failed result. One without SQLSTATE comes from libpq itself: the connection was lost."""
    if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
        return psycopg.OperationalError(result.get_error_message().strip())
    return psycopg.errors.error_from_result(result)
