"""Slots and the snapshots that they export: made, looked at, waited for, dropped."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from ingest.common.errors import Failure
from ingest.common.log_repeats import Repeats
from ingest.positions.position import parse_lsn
from ingest.sources.postgres.postgres_connection import Connection, command, connect, is_cut

_log = logging.getLogger(__name__)

# A walsender whose client was killed needs a moment to notice.
RELEASE_SECONDS = 15.0
# Seconds before the first look at the transactions that a slot waits for; between two looks it is six times as long.
_REPORT_SECONDS = 5.0
# Between tries to make a temporary slot where the server has no room for one more.
_ROOM_SECONDS = 1.0


@dataclass(frozen=True)
class System:
    """Which cluster is behind a connection, and on which timeline."""

    system_id: str
    timeline: int


@dataclass
class Held:
    """A snapshot of the source that any number of sessions may import by `name`, until it is
    closed.

    lsn: its stamp; what committed before is in it, all else comes with the stream. made_for: tables
    that had been published and queued before it was made, by table_id, with the `rev` they had
    then.
    """

    lsn: int
    name: str
    connection: Connection
    made_for: Mapping[str, int]

    def covers(self, queued: Mapping[str, int]) -> bool:
        """Whether it is no older than the queueing of these tables (`rev` by table_id)."""
        return all(self.made_for.get(table_id) == rev for table_id, rev in queued.items())

    def close(self) -> None:
        """Lets go of the snapshot; transactions that imported it live on."""
        self.connection.close()


def identify(replication: Connection) -> System:
    """The system behind a replication connection."""
    (row,) = command(replication, "IDENTIFY_SYSTEM")
    return System(str(row["systemid"]), int(row["timeline"] or 0))


def sender_timeout(replication: Connection) -> float:
    """Seconds after which the server ends the connection of a silent client (wal_sender_timeout); 0: never."""
    (row,) = command(replication, "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'")
    return int(str(row["setting"])) / 1000


def state(connection: Connection, slot: str) -> dict[str, Any] | None:
    """The row of pg_replication_slots, whatever the server's version has in it; None.

    There is no such slot.
    """
    row = connection.execute(
        "SELECT to_jsonb(s) FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s", [slot]
    ).fetchone()
    return row[0] if row else None


def states(connection: Connection) -> dict[str, dict[str, Any]]:
    """The rows of pg_replication_slots by slot."""
    rows = connection.execute("SELECT slot_name, to_jsonb(s) FROM pg_catalog.pg_replication_slots s").fetchall()
    return dict(rows)


class GivenUp(Exception):
    """Nobody waits any more for what was to come."""


def create(
    dsn: str,
    slot: str | None,
    made_for: Mapping[str, int],
    waiting: Callable[[], None] | None = None,
    seconds: float = 10.0,
) -> Held:
    """Makes a slot and holds the snapshot that it exports. slot: None for one that is gone again at
    once.

    It waits for all transactions that are open, and a temporary one until the server has room for it; waiting: called
    every second of that, may raise `GivenUp`. Raises Failure; of a temporary one psycopg's OperationalError where the
    connection was cut.
    """
    replication = connect(dsn, replication=True, connect_timeout_seconds=seconds)
    watch = connect(dsn, connect_timeout_seconds=seconds)
    try:
        name = slot or f"tidemark_snapshot_{time.time_ns():x}"
        failover = slot and watch.info.server_version >= 170000 and not _in_recovery(watch)
        options = f"SNAPSHOT 'export'{', FAILOVER' if failover else ''}"
        kind = "LOGICAL" if slot else "TEMPORARY LOGICAL"
        statement = f'CREATE_REPLICATION_SLOT "{name}" {kind} pgoutput ({options})'
        (row,) = _when_there_is_room(replication, statement, _Waits(watch, name, waiting), wait=slot is None)
        lsn, exported = parse_lsn(str(row["consistent_point"])), str(row["snapshot_name"])
        # The holder is a plain transaction: a slot would keep the log for as long as the snapshot
        # is read.
        watch.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        watch.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(exported))
        held = watch.execute("SELECT pg_export_snapshot()").fetchone()
        assert held is not None
        return Held(lsn, held[0], watch, dict(made_for))
    except psycopg.Error as error:
        watch.close()
        if slot is None and is_cut(error):
            raise
        raise _cannot_create(slot or "a temporary slot", error) from None
    except BaseException:
        watch.close()
        raise
    finally:
        replication.close()


def _when_there_is_room(
    replication: Connection, statement: str, waits: "_Waits", *, wait: bool
) -> list[dict[str, str | None]]:
    """What making a slot gives. wait: until another one has gone, as other snapshotters' do."""
    said = False
    while True:
        try:
            return command(replication, statement, waits)
        except psycopg.errors.ConfigurationLimitExceeded:
            if not wait:
                raise
        if not said:
            said = True
            _log.warning("all max_replication_slots are in use: the next snapshot waits for one to be free")
        waits.look()
        time.sleep(_ROOM_SECONDS)


def current_lsn(connection: Connection) -> int:
    """Where the server's log is, about."""
    row = connection.execute(
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END::text"
    ).fetchone()
    assert row is not None
    return parse_lsn(row[0])


def is_ours(connection: Connection, found: dict[str, Any] | None) -> bool:
    """Whether a slot, as `state` gave it, may be one of this database's writers."""
    return found is not None and found["plugin"] == "pgoutput" and found["database"] == _database(connection)


def check_ours(connection: Connection, found: dict[str, Any], slot: str, source: str) -> None:
    """Raises Failure for a slot, as `state` gave it, that is none of this database's writers'."""
    where = f"source {source}, slot {slot}"
    if found["plugin"] != "pgoutput":
        kind = found["plugin"] or "physical replication"
        fix = "Name another slot in sources.yml, or drop that one"
        raise Failure(f"the replication slot is of {kind}, not of pgoutput", where, fix)
    if found["database"] != _database(connection):
        what = f"the replication slot belongs to database {found['database']!r}"
        raise Failure(what, where, "Name another slot in sources.yml")


def _database(connection: Connection) -> str:
    """Its name as pg_replication_slots spells it, which needn't be as the DSN does: names are of no encoding."""
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    return str(name)


def check_droppable(connection: Connection, slot: str, source: str) -> None:
    """Raises Failure for a slot that is not to be dropped: somebody streams from it, or it was never ours."""
    if found := state(connection, slot):
        check_ours(connection, found, slot, source)
    when_free(connection, slot, source)


def drop(connection: Connection, slot: str, source: str) -> None:
    """Drops a slot, if it is there. Raises Failure if it is not `check_droppable`."""
    check_droppable(connection, slot, source)
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
        [slot],
    )


class _Waits:
    """Says once in a while which open transactions the making of a slot waits for."""

    def __init__(self, watch: Connection, slot: str, also: Callable[[], None] | None) -> None:
        self._watch, self._slot, self._also = watch, slot, also
        self._next = time.monotonic() + _REPORT_SECONDS
        self._repeats = Repeats(_log)

    def look(self) -> None:
        """Whether it is to be given up."""
        if self._also:
            self._also()

    def __call__(self) -> None:
        self.look()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 6 * _REPORT_SECONDS
        found = ", ".join(open_transactions(self._watch)) or "the role may not see them"
        self._repeats.occurred(f"slot {self._slot} waits for open transactions: {found}", key=self._slot)


def open_transactions(connection: Connection) -> list[str]:
    """The oldest open transactions that have written, prepared ones included, as text."""
    return [
        f"{transaction} of {user}, open for {age}"
        for transaction, user, age in connection.execute(
            "SELECT 'pid ' || pid, usename, date_trunc('second', now() - xact_start)::text AS age "
            "FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND xact_start IS NOT NULL "
            "UNION ALL SELECT 'prepared ' || gid, owner, date_trunc('second', now() - prepared)::text "
            "FROM pg_prepared_xacts ORDER BY age DESC LIMIT 3"
        ).fetchall()
    ]


def _in_recovery(connection: Connection) -> bool:
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    return bool(row and row[0])


def _cannot_create(slot: str, error: psycopg.Error) -> Failure:
    text = error.diag.message_primary or str(error)
    if "wal_level" in text:
        return Failure(text, slot, "Set wal_level = logical in the server's configuration and restart it")
    if isinstance(error, psycopg.errors.ConfigurationLimitExceeded):
        return Failure(text, slot, "Drop a slot that nobody uses, or raise max_replication_slots")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Failure(text, slot, "Give the role the REPLICATION attribute: ALTER ROLE ... REPLICATION")
    return Failure(f"can't make a replication slot ({text})", slot, "See the server's log")


def end_reader(connection: Connection, slot: str, process: int) -> None:
    """Ends a process of the server that reads a slot, if it is this one: ours, cut off from us and not aware of it."""
    connection.execute(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid = %s",
        [slot, process],
    )


def when_free(connection: Connection, slot: str, source: str) -> dict[str, Any] | None:
    """The slot's `state` when it is not in use; waits a little, as a walsender notices late that its client was killed.

    Raises Failure if it stays so.
    """
    deadline, said = time.monotonic() + RELEASE_SECONDS, False
    while (found := state(connection, slot)) and found["active"]:
        if not said:
            _log.info("slot %s: waits up to %g s for process %s", slot, RELEASE_SECONDS, found["active_pid"])
            said = True
        if time.monotonic() >= deadline:
            raise Failure(
                f"the replication slot is in use by process {found['active_pid']} of the server",
                f"source {source}, slot {slot}",
                "End the stream that reads it, or name another slot in sources.yml",
            )
        time.sleep(0.1)
    return found
