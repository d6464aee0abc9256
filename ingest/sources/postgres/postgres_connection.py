"""Connections to a source, all with the same session settings, so that COPY and the stream print
values alike.

Whatever keeps a connection from being made is a Failure on one line that names host and database,
never the DSN. TLS and everything else that libpq knows comes from the DSN.
"""

import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ingest.common.errors import Failure, Unavailable, one_line, redact

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# What a person may have set for a role or a database must neither change a value's text nor end a
# long read.
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
# The lower bound of the server's version: pgoutput's messages, ctid range scans, publication row
# filters.
OLDEST_SERVER = 150000


def connect(dsn: str, *, replication: bool = False, connect_timeout_seconds: float = 10.0) -> Connection:
    """A connection in autocommit mode; replication: as a walsender for the DSN's database.

    Raises CannotConnect, or Failure for a server that is too old.
    """
    given = conninfo_to_dict(dsn)
    options = " ".join(f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())
    extra: dict[str, Any] = {
        "options": f"{given.get('options', '') or ''} {options}".strip(),
        "client_encoding": "UTF8",
        "application_name": given.get("application_name") or "tidemark",
        "connect_timeout": given.get("connect_timeout") or max(2, round(connect_timeout_seconds)),
        "keepalives_idle": given.get("keepalives_idle") or 30,
        "keepalives_interval": given.get("keepalives_interval") or 10,
        "keepalives_count": given.get("keepalives_count") or 3,
        # Keepalives say nothing while something sent waits to be acknowledged, as a status does.
        "tcp_user_timeout": given.get("tcp_user_timeout") or 60_000,
    }
    if replication:
        extra["replication"] = "database"
        # By default libpq would encrypt where there happens to be a ticket, and not say so.
        extra["gssencmode"] = given.get("gssencmode") or os.environ.get("PGGSSENCMODE") or "disable"
    try:
        connection = psycopg.connect(make_conninfo(dsn, **extra), autocommit=True)
    except psycopg.Error as error:
        raise cannot_connect(dsn, error) from None
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        connection.close()
        raise Failure(f"the server is PostgreSQL {version // 10000}", place(dsn), "Tidemark needs 15 or later")
    # PGDATESTYLE and PGTZ come after the options.
    command(connection, f"SET datestyle = '{SESSION_SETTINGS['datestyle']}'")
    command(connection, f"SET timezone = '{SESSION_SETTINGS['timezone']}'")
    if version >= 170000:  # an older one would refuse it among the options
        command(connection, "SET transaction_timeout = 0")
    return connection


# Whoever alters a table for longer is told of, and asked after again.
LOCK_TIMEOUT = "5s"
_LOCKED = """
SELECT string_agg(DISTINCT format('%I.%I (by process %s of the server)', n.nspname, c.relname, l.pid), ', ')
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE l.granted AND l.mode = 'AccessExclusiveLock' AND c.relkind IN ('r', 'p')
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@contextmanager
def impatient(connection: Connection) -> Iterator[None]:
    """What waits for a table's lock meanwhile ends with psycopg's LockNotAvailable; see `locked_tables`."""
    connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("RESET lock_timeout")


def locked_tables(connection: Connection) -> str:
    """Which tables nobody can look at, and by whom they are locked, for people."""
    ((names,),) = connection.execute(_LOCKED).fetchall()
    return f"tables are locked: {names or 'none any more'}"


class Link:
    """A connection that is made when it is needed, and again after it was lost. For one thread, to read the catalogue.

    What waits for a table's lock ends with psycopg's LockNotAvailable. check: of each new connection, not used
    if it raises.
    """

    def __init__(self, dsn: str, connect_timeout_seconds: float, check: Callable[[Connection], None]) -> None:
        self._dsn = dsn
        self._seconds = connect_timeout_seconds
        self._check = check
        self._connection: Connection | None = None

    def get(self) -> Connection:
        """The connection, in autocommit mode. Raises what `connect` and `check` do."""
        if self._connection is None or self._connection.closed:
            made = connect(self._dsn, connect_timeout_seconds=self._seconds)
            try:
                self._check(made)
                made.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
            except BaseException:
                made.close()
                raise
            self._connection = made
        return self._connection

    def why(self, error: Exception) -> str:
        """What `error`, raised by the catalogue, says to a person: of a lock, which tables are locked and by whom."""
        if isinstance(error, psycopg.errors.LockNotAvailable):
            with suppress(psycopg.Error, CannotConnect):  # it may be gone by now
                return locked_tables(self.get())
        return one_line(str(error))

    def close(self) -> None:
        """Close what is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def place(dsn: str) -> str:
    """Host, port and database of a DSN, for people."""
    given = conninfo_to_dict(dsn)
    host = given.get("host") or given.get("hostaddr") or "local socket"
    port = given.get("port")
    return f"{host}{f':{port}' if port else ''}/{given.get('dbname') or given.get('user') or ''}"


class CannotConnect(Unavailable):
    """The source can't be reached, or doesn't let us in, at the moment."""


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


def cannot_connect(dsn: str, error: psycopg.Error) -> CannotConnect:
    """What `error`, raised by connecting, says to a person."""
    lines = [line for line in redact(str(error)).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    # libpq begins with the place, which is said already.
    text = text.rpartition("FATAL:")[2].strip() or text
    hints = (hint for signs, hint in _HINTS if any(sign in text for sign in signs))
    return CannotConnect(
        f"can't connect to Postgres ({text.removeprefix('connection failed: ')})",
        place(dsn),
        next(hints, "Is the server up, and the DSN right?"),
    )


def command(
    connection: Connection,
    text: str,
    waiting: Callable[[], None] | None = None,
    every: float = 1.0,
) -> list[dict[str, str | None]]:
    """The rows of one replication command, by column.

    waiting: called every so many seconds until the answer is there; what it raises gives the
    command up. Raises psycopg errors as the server tells them.
    """
    pgconn = connection.pgconn
    pgconn.send_query(text.encode())
    while pgconn.is_busy():
        if not select.select([pgconn.socket], [], [], every)[0]:
            if waiting:
                waiting()
            continue
        pgconn.consume_input()
    rows: list[dict[str, str | None]] = []
    error: psycopg.Error | None = None
    while (result := pgconn.get_result()) is not None:  # to the end, so that another command may follow
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            error = _error_of(result)
            continue
        names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        rows += [_row(result, number, names) for number in range(result.ntuples)]
    if error is not None:
        raise error
    return rows


def _row(result: Any, number: int, names: Sequence[str]) -> dict[str, str | None]:
    values = (result.get_value(number, column) for column in range(len(names)))
    return {name: None if value is None else value.decode() for name, value in zip(names, values, strict=True)}


# What a look at the catalogue may end with while others alter it, such as an internal error of one that finds a table
# dropped: another look will do.
PASSING = (
    psycopg.errors.InternalError_,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.UndefinedObject,
    psycopg.errors.UndefinedTable,
)


def is_cut(error: psycopg.Error) -> bool:
    """Whether the connection was lost, or the server is going down: it may be back soon."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08").startswith(("57P", "08"))


def copy_out(connection: Connection, statement: str) -> Iterator[memoryview]:
    """What a COPY TO STDOUT gives, a row at a time.

    Raises psycopg errors as the server tells them.
    """
    pgconn = connection.pgconn
    pgconn.send_query(statement.encode())
    _expect(pgconn, pq.ExecStatus.COPY_OUT)
    get, socket = pgconn.get_copy_data, [pgconn.socket]
    while True:
        length, data = get(1)
        if length > 0:
            yield data
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
            raise psycopg.OperationalError("the server gave no answer")
        raise _error_of(result)


def _error_of(result: pq.abc.PGresult) -> psycopg.Error:
    """What a failed result says. Without an SQLSTATE it is libpq's own word: the connection could not be written to."""
    if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
        return psycopg.OperationalError(result.get_error_message().strip())
    return psycopg.errors.error_from_result(result)
