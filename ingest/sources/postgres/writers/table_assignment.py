"""Which writer streams which table: shared out over the writers' publications.

A table changes its writer by one transaction of the source that alters both publications, and that commits when nobody
has an open change of the table. So its log is split between two transactions: what commits before is the old writer's,
what commits after the new one's. One process at a time alters publications.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg import sql

from ingest.common.errors import Failure
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.lake.source_tables import ENDED
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.catalog.publications import Member
from ingest.sources.postgres.postgres_connection import CannotConnect, Connection
from ingest.sources.postgres.slots.replication_slots import Cancelled

_log = logging.getLogger(__name__)
T = TypeVar("T", int, str)

# For so long at most whoever writes into the table waits behind us, and if this process is stopped meanwhile.
LOCK_TIMEOUT, HOLD_TIMEOUT = "1s", "10s"
_UNKNOWN = (1 << 63) - 1
# Between tries to be the one process that sees to something, and after which it is said who is waited for; then more
# and more seldom.
_TRY_SECONDS, _SAY_SECONDS = 0.2, 2.0
_LOCKED_BY = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32 | objid::bigint) = hashtextextended(%s, 0)
"""


def sleep(seconds: float) -> bool:
    """Waits, and never gives up."""
    time.sleep(seconds)
    return False


@contextmanager
def locked(
    connection: Connection, source: PostgresSource, what: str, wait: Callable[[float], bool] = sleep
) -> Iterator[None]:
    """While this is open no other process does `what` to the same source.

    wait: waits so many seconds for another to end, true if it is to give up. Raises Cancelled then.
    """
    key = [f"tidemark {what} of {source.slot}"]
    since, said = time.monotonic(), _SAY_SECONDS
    attempt = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
    while connection.execute(attempt, key).fetchone() != (True,):
        if (waited := time.monotonic() - since) >= said:
            said = 2 * waited
            by = ", ".join(str(pid) for (pid,) in connection.execute(_LOCKED_BY, key)) or "that has just ended"
            message = "source %s: has waited %d s for process %s of the server, which sees to its %s"
            _log.warning(message, source.name, waited, by, what)
        if wait(_TRY_SECONDS):
            raise Cancelled
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", key)


def shares(owners: Mapping[T, int], writers: Sequence[int]) -> dict[T, int]:
    """Which tables are to change their writer, and to whom. Pure, and the same for the same input.

    owners: the writer of each table. writers: those that stay. Tables of others go to whoever has the fewest. Where one
    that stays has none and another several, all are evened out; else a person's own sharing out is left as it is.
    """
    held: dict[int, list[T]] = {writer: [] for writer in sorted(writers)}
    for table, writer in sorted(owners.items()):
        if writer in held:
            held[writer].append(table)
    idle = not all(held.values())
    for table in sorted(table for table, writer in owners.items() if writer not in held):
        held[_fewest(held)].append(table)
    while idle:
        fullest = max(held, key=lambda writer: (len(held[writer]), -writer))
        if len(held[fullest]) - len(held[_fewest(held)]) <= 1:
            break
        held[_fewest(held)].append(held[fullest].pop())
    return {table: writer for writer, tables in held.items() for table in tables if owners[table] != writer}


def _fewest(held: Mapping[int, Sequence[object]]) -> int:
    return min(held, key=lambda writer: (len(held[writer]), writer))


def add(
    connection: Connection,
    lake: Lake,
    source: PostgresSource,
    tables: Sequence[CatalogTable],
    wait: Callable[[float], bool] = sleep,
) -> None:
    """Publishes new tables, each by the writer that has the fewest. wait: see `locked`."""
    with locked(connection, source, "tables", wait):
        names = _ours(connection, lake, source)
        published = publications.read(connection, names)
        held = Counter({writer: 0 for writer in names if writer <= source.writers})
        held.update(m.writer for m in publications.members(connection, names) if m.writer in held)
        for table in tables:
            if held and table.is_owned and not publications.holds(published, table):
                writer = min(held, key=lambda one: (held[one], one))
                publications.add(connection, names[writer], table)
                held[writer] += 1


def release(connection: Connection, lake: Lake, source: PostgresSource, wait: Callable[[float], bool] = sleep) -> None:
    """Takes tables out of our publications that have become partitions of another: they come with that one, and would
    come twice if another writer has it. wait: see `locked`.
    """
    with locked(connection, source, "tables", wait):
        _release(connection, lake, source)


def _release(connection: Connection, lake: Lake, source: PostgresSource) -> None:
    names = _ours(connection, lake, source)
    everyone = {writer: source.publication_of(writer) for writer in lake.active_writers(source.name)}
    for member in publications.attached(publications.members(connection, everyone)):
        if member.writer in names:
            publications.drop(connection, names[member.writer], member)
            _log.info("%s is published with the table that it is a partition of now", member.table_name)


def share_out(
    connection: Connection, lake: Lake, source: PostgresSource, wait: Callable[[float], bool] = sleep
) -> None:
    """Moves tables to the writers that `sources.yml` asks for, see `shares`; those that can't be are named. wait: see
    `locked`.
    """
    with locked(connection, source, "tables", wait):
        _release(connection, lake, source)
        names = _ours(connection, lake, source)
        members = publications.members(connection, names)
        several = Counter(member.oid for member in members)
        found = {member.oid: member for member in members if several[member.oid] == 1}
        owners = {oid: member.writer for oid, member in found.items()}
        staying = [writer for writer in names if writer <= source.writers]
        moves = shares(owners, staying) if staying else {}
        for oid, writer in moves.items():
            name, owner = found[oid].table_name, owners[oid]
            if not found[oid].owned:
                _log.warning("%s stays with writer %d: its owner has to move it", name, owner)
            elif problem := _move(connection, lake, source, found[oid], writer):
                _log.warning("%s stays with writer %d for now: %s", name, owner, problem)
            else:
                _log.info("%s moves from writer %d to writer %d", name, owner, writer)


def moved_since(lake: Lake, source: PostgresSource, position: int) -> bool:
    """Whether a table was moved after `position`, as far as the lake knows: not of a move that was cut off."""
    return any(position < (table.moved_lsn or 0) < _UNKNOWN for table in lake.tables.read(source.name).values())


def _ours(connection: Connection, lake: Lake, source: PostgresSource) -> dict[int, str]:
    """The publications of writers that count which we may alter: whatever is in them is waited for."""
    return publications.ours(connection, {w: source.publication_of(w) for w in lake.active_writers(source.name)})


def _move(connection: Connection, lake: Lake, source: PostgresSource, member: Member, writer: int) -> str:
    """Why the table is not with `writer` now; empty if it is."""
    old, new = source.publication_of(member.writer), source.publication_of(writer)
    try:
        with connection.transaction():
            # Should this process be stopped while it holds locks, the source goes on.
            connection.execute(sql.SQL("SET LOCAL idle_in_transaction_session_timeout = {}").format(HOLD_TIMEOUT))
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_TIMEOUT))
            moving_id = publications.swap(connection, old, new, member)
            # Before the commit: who sees the table in another publication must know that it was not taken out.
            told = {"published_id": member.published_id, "moving_id": moving_id, "moved_lsn": _UNKNOWN}
            _tell(lake, source, member, {member.published_id}, **told)
            table = sql.Identifier(member.schema, member.name)
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(table))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        return "a transaction holds it"
    except (psycopg.OperationalError, psycopg.errors.IdleInTransactionSessionTimeout) as error:
        raise CannotConnect(
            f"the connection was cut while {member.table_name} moved ({' '.join(str(error).split())})",
            f"source {source.name}",
            "Start the stream again",
        ) from None
    except psycopg.errors.ProgrammingError as error:  # it was dropped, renamed or published by somebody meanwhile
        return error.diag.message_primary or str(error)
    # Also to a row that was registered since, by who had looked before.
    seen = {member.published_id, moving_id}
    moved_lsn = catalog_tables.emit_marker(connection)
    _tell(lake, source, member, seen, published_id=moving_id, moving_id=None, moved_lsn=moved_lsn, writer=writer)
    return ""


def _tell(lake: Lake, source: PostgresSource, member: Member, seen: Collection[int], **changes: int | None) -> None:
    """Changes the lake's rows of a table that has been in its publication as one of `seen`, without a gap."""
    for _ in range(10):
        known = lake.tables.read(source.name).values()
        ours = [row for row in known if row.relation_id == member.oid and row.state != ENDED]
        rows = [row.with_changes(**changes) for row in ours if row.published_id in seen or row.moving_id in seen]
        if len(lake.tables.upsert(source.name, rows)) == len(rows):
            return
    raise Failure(f"{member.table_name} is being altered by others", f"source {source.name}", "Start the stream again")
