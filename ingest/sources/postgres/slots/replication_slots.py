"""Replication slots and the snapshots that they export: create, inspect, wait for, drop."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from ingest.common.errors import Failure
from ingest.common.log_repeats import Repeats
from ingest.positions.position import parse_lsn
from ingest.sources.postgres.postgres_connection import Connection, connect, is_connection_lost, run_command

_log = logging.getLogger(__name__)

# A walsender needs some seconds to detect that its client was killed.
RELEASE_SECONDS = 15.0
# Seconds until the first report of the transactions that slot creation waits for; later reports come every
# 6 * _REPORT_SECONDS.
_REPORT_SECONDS = 5.0
# Seconds between attempts to create a temporary slot when all slots of the server are in use.
_FREE_SLOT_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class ServerIdentity:
    """The cluster that a connection leads to, and its timeline, as IDENTIFY_SYSTEM returns them."""

    system_id: str
    timeline: int


@dataclass
class ExportedSnapshot:
    """An exported snapshot. Any number of sessions may import it by `name` until it is closed.

    lsn: the snapshot LSN. Transactions that committed before it are in the snapshot; the stream sends all others.
    queued_tables: the tables that were published and queued before the snapshot was created: `rev` at that time, by
    table_id.
    """

    lsn: int
    name: str
    connection: Connection
    queued_tables: Mapping[str, int]

    def includes(self, queued: Mapping[str, int]) -> bool:
        """Whether the snapshot was created after these tables (`rev` by table_id) were queued."""
        return all(self.queued_tables.get(table_id) == rev for table_id, rev in queued.items())

    def close(self) -> None:
        """Release the snapshot. Transactions that have imported it keep it."""
        self.connection.close()


def identify_server(replication: Connection) -> ServerIdentity:
    """The server that a replication connection leads to."""
    (row,) = run_command(replication, "IDENTIFY_SYSTEM")
    return ServerIdentity(str(row["systemid"]), int(row["timeline"] or 0))


def read_sender_timeout(replication: Connection) -> float:
    """The server's wal_sender_timeout in seconds; 0: no timeout."""
    (row,) = run_command(replication, "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'")
    return int(str(row["setting"])) / 1000


def read_slot(connection: Connection, slot: str) -> dict[str, Any] | None:
    """The slot's row of pg_replication_slots, with the columns of the server's version; None: there is no such slot."""
    row = connection.execute(
        "SELECT to_jsonb(s) FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s", [slot]
    ).fetchone()
    return row[0] if row else None


def read_slots(connection: Connection) -> dict[str, dict[str, Any]]:
    """The rows of pg_replication_slots by slot name."""
    rows = connection.execute("SELECT slot_name, to_jsonb(s) FROM pg_catalog.pg_replication_slots s").fetchall()
    return dict(rows)


class Cancelled(Exception):
    """The job that waited is stopping."""


def create_slot(
    dsn: str,
    slot: str | None,
    queued_tables: Mapping[str, int],
    waiting: Callable[[], None] | None = None,
    seconds: float = 10.0,
) -> ExportedSnapshot:
    """Create a slot and keep the snapshot that it exports. slot: None: a temporary slot, dropped again at once.

    queued_tables: see `ExportedSnapshot`. seconds: the connect timeout.
    Waits until all open transactions have ended; for a temporary slot, also until a slot is free. waiting: called every
    second meanwhile; it may raise `Cancelled`. Raises Failure; for a temporary slot psycopg's OperationalError if the
    connection was lost.
    """
    replication = connect(dsn, replication=True, connect_timeout_seconds=seconds)
    holder = connect(dsn, connect_timeout_seconds=seconds)
    try:
        name = slot or f"tidemark_snapshot_{time.time_ns():x}"
        failover = slot and holder.info.server_version >= 170000 and not is_in_recovery(holder)
        options = f"SNAPSHOT 'export'{', FAILOVER' if failover else ''}"
        kind = "LOGICAL" if slot else "TEMPORARY LOGICAL"
        statement = f'CREATE_REPLICATION_SLOT "{name}" {kind} pgoutput ({options})'
        monitor = _SlotCreationMonitor(holder, name, waiting)
        (row,) = _create_when_free(replication, statement, monitor, wait=slot is None)
        lsn, exported = parse_lsn(str(row["consistent_point"])), str(row["snapshot_name"])
        # A plain transaction holds the snapshot: a slot would retain WAL for as long as the snapshot is read.
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        holder.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(exported))
        name_row = holder.execute("SELECT pg_export_snapshot()").fetchone()
        assert name_row is not None
        return ExportedSnapshot(lsn, name_row[0], holder, dict(queued_tables))
    except psycopg.Error as error:
        holder.close()
        if slot is None and is_connection_lost(error):
            raise
        raise _creation_failure(slot or "a temporary slot", error) from None
    except BaseException:
        # A server that waits for a transaction does not notice that the connection was closed.
        with suppress(psycopg.Error):
            holder.execute("SELECT pg_terminate_backend(%s)", [replication.info.backend_pid])
        holder.close()
        raise
    finally:
        replication.close()


def _create_when_free(
    replication: Connection, statement: str, monitor: "_SlotCreationMonitor", *, wait: bool
) -> list[dict[str, str | None]]:
    """The result of CREATE_REPLICATION_SLOT. wait: if all slots are in use, wait until one is dropped."""
    has_logged = False
    while True:
        try:
            return run_command(replication, statement, monitor)
        except psycopg.errors.ConfigurationLimitExceeded:
            if not wait:
                raise
        if not has_logged:
            has_logged = True
            _log.warning("no free replication slot (max_replication_slots); the next snapshot waits for one")
        monitor.check_cancelled()
        time.sleep(_FREE_SLOT_POLL_SECONDS)


def read_current_lsn(connection: Connection) -> int:
    """The server's current WAL position, approximately. Not for snapshots: see `create_slot`."""
    row = connection.execute(
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END::text"
    ).fetchone()
    assert row is not None
    return parse_lsn(row[0])


def is_writer_slot(connection: Connection, state: dict[str, Any] | None) -> bool:
    """Whether a slot, as `read_slot` returned it, can belong to a stream writer of this database."""
    return state is not None and state["plugin"] == "pgoutput" and state["database"] == _read_database_name(connection)


def check_writer_slot(connection: Connection, state: dict[str, Any], slot: str, source: str) -> None:
    """Raises Failure for a slot, as `read_slot` returned it, that can't belong to a stream writer of this database."""
    where = f"source {source}, slot {slot}"
    if state["plugin"] != "pgoutput":
        kind = state["plugin"] or "physical replication"
        fix = "Configure another slot in sources.yml, or drop this one"
        raise Failure(f"the replication slot uses {kind}, not pgoutput", where, fix)
    if state["database"] != _read_database_name(connection):
        what = f"the replication slot belongs to database {state['database']!r}"
        raise Failure(what, where, "Configure another slot in sources.yml")


def _read_database_name(connection: Connection) -> str:
    """The database's name as pg_replication_slots has it. The DSN may spell it in another encoding."""
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    return str(name)


def check_droppable(connection: Connection, slot: str, source: str) -> None:
    """Raises Failure if a slot must not be dropped: a process streams from it, or it is not a stream writer's."""
    if state := read_slot(connection, slot):
        check_writer_slot(connection, state, slot, source)
    wait_until_free(connection, slot, source)


def drop_slot(connection: Connection, slot: str, source: str) -> None:
    """Drop a slot if it exists. Raises Failure as `check_droppable` does."""
    check_droppable(connection, slot, source)
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
        [slot],
    )


class _SlotCreationMonitor:
    """Called while a slot is created: logs from time to time which open transactions the creation waits for.

    waiting: called each time; it may raise `Cancelled`.
    """

    def __init__(self, connection: Connection, slot: str, waiting: Callable[[], None] | None) -> None:
        self._connection, self._slot, self._waiting = connection, slot, waiting
        self._next_report = time.monotonic() + _REPORT_SECONDS
        self._repeats = Repeats(_log)

    def check_cancelled(self) -> None:
        """Raises `Cancelled` if the creation is to be abandoned."""
        if self._waiting:
            self._waiting()

    def __call__(self) -> None:
        self.check_cancelled()
        if time.monotonic() < self._next_report:
            return
        self._next_report = time.monotonic() + 6 * _REPORT_SECONDS
        transactions = ", ".join(find_open_transactions(self._connection)) or "not visible to the role"
        self._repeats.occurred(f"slot {self._slot} waits for open transactions: {transactions}", key=self._slot)


def find_open_transactions(connection: Connection) -> list[str]:
    """The three oldest open transactions that have written, including prepared ones, described for a message."""
    return [
        f"{transaction} of {user}, open for {age}"
        for transaction, user, age in connection.execute(
            "SELECT 'pid ' || pid, usename, date_trunc('second', now() - xact_start)::text AS age "
            "FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND xact_start IS NOT NULL "
            "UNION ALL SELECT 'prepared ' || gid, owner, date_trunc('second', now() - prepared)::text "
            "FROM pg_prepared_xacts ORDER BY age DESC LIMIT 3"
        ).fetchall()
    ]


def is_in_recovery(connection: Connection) -> bool:
    """Whether the server is a standby."""
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    return bool(row and row[0])


def _creation_failure(slot: str, error: psycopg.Error) -> Failure:
    text = error.diag.message_primary or str(error)
    if "wal_level" in text:
        return Failure(text, slot, "Set wal_level = logical in the server's configuration and restart it")
    if isinstance(error, psycopg.errors.ConfigurationLimitExceeded):
        return Failure(text, slot, "Drop an unused slot, or raise max_replication_slots")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Failure(text, slot, "Give the role the REPLICATION attribute: ALTER ROLE ... REPLICATION")
    return Failure(f"can't create a replication slot ({text})", slot, "See the server's log")


def terminate_walsender(connection: Connection, slot: str, process: int) -> None:
    """End the walsender `process` if it still uses the slot: its connection to this client was lost unnoticed."""
    connection.execute(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid = %s",
        [slot, process],
    )


def wait_until_free(connection: Connection, slot: str, source: str) -> dict[str, Any] | None:
    """The slot's state, as `read_slot` returns it, once no process uses it.

    Waits up to RELEASE_SECONDS, since a walsender detects a killed client late. Raises Failure if it is still in use.
    """
    deadline, has_logged = time.monotonic() + RELEASE_SECONDS, False
    while (state := read_slot(connection, slot)) and state["active"]:
        if not has_logged:
            _log.info("slot %s: waiting up to %g s for server process %s", slot, RELEASE_SECONDS, state["active_pid"])
            has_logged = True
        if time.monotonic() >= deadline:
            raise Failure(
                f"the replication slot is in use by process {state['active_pid']} of the server",
                f"source {source}, slot {slot}",
                "Stop the stream that reads it, or configure another slot in sources.yml",
            )
        time.sleep(0.1)
    return state
