"""Which writer streams which table: shared out over the writers' publications.

A table changes its writer by one transaction of the source that alters both publications, and that commits when nobody
has an open change of the table. So its log is split between two transactions: what commits before is the old writer's,
what commits after the new one's. One process at a time alters publications.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg import sql

from ingest.config import PostgresSource
from ingest.errors import Failure
from ingest.lake import Lake
from ingest.lake.tables import ENDED
from ingest.postgres import publications
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import Connection
from ingest.postgres.publications import Member

_log = logging.getLogger(__name__)
T = TypeVar("T", int, str)

# For so long at most whoever writes into the table waits behind us, and if this process is stopped meanwhile.
LOCK_TIMEOUT, HOLD_TIMEOUT = "1s", "10s"


@contextmanager
def locked(connection: Connection, source: PostgresSource, what: str) -> Iterator[None]:
    """While this is open no other process does `what` to the same source."""
    key = [f"tidemark {what} of {source.slot}"]
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", key).fetchone()
    if row and not row[0]:
        _log.info("source %s: waits for another process that sees to its %s", source.name, what)
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", key)
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


def add(connection: Connection, lake: Lake, source: PostgresSource, tables: Sequence[CatalogTable]) -> None:
    """Publishes new tables, each by the writer that has the fewest."""
    with locked(connection, source, "tables"):
        names = _ours(connection, lake, source)
        published = publications.read(connection, names)
        held = Counter({writer: 0 for writer in names if writer <= source.writers})
        held.update(m.writer for m in publications.members(connection, names) if m.writer in held)
        for table in tables:
            if held and table.owned and not publications.holds(published, table):
                writer = min(held, key=lambda one: (held[one], one))
                publications.add(connection, names[writer], table)
                held[writer] += 1


def share_out(connection: Connection, lake: Lake, source: PostgresSource) -> None:
    """Moves tables to the writers that `sources.yml` asks for, see `shares`; those that can't be are named."""
    with locked(connection, source, "tables"):
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


def _ours(connection: Connection, lake: Lake, source: PostgresSource) -> dict[int, str]:
    """The publications of writers that count which we may alter: whatever is in them is waited for."""
    return publications.ours(connection, {w: source.publication_of(w) for w in lake.writers(source.name)})


def _move(connection: Connection, lake: Lake, source: PostgresSource, member: Member, writer: int) -> str:
    """Why the table is not with `writer` now; empty if it is."""
    old, new = source.publication_of(member.writer), source.publication_of(writer)
    try:
        with connection.transaction():
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_TIMEOUT))
            moving_id = publications.swap(connection, old, new, member)
            # Before the commit: who sees the table in another publication must know that it was not taken out.
            _tell(lake, source, member, {member.published_id}, published_id=member.published_id, moving_id=moving_id)
            # Should this process be stopped while it holds the lock, the source goes on.
            connection.execute(sql.SQL("SET LOCAL idle_in_transaction_session_timeout = {}").format(HOLD_TIMEOUT))
            table = sql.Identifier(member.schema, member.name)
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(table))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        return "a transaction holds it"
    except psycopg.errors.ProgrammingError as error:  # it was dropped, renamed or published by somebody meanwhile
        return error.diag.message_primary or str(error)
    # Also to a row that was registered since, by who had looked before.
    seen = {member.published_id, moving_id}
    _tell(lake, source, member, seen, published_id=moving_id, moving_id=None, writer=writer)
    return ""


def _tell(lake: Lake, source: PostgresSource, member: Member, seen: Collection[int], **changes: int | None) -> None:
    """Changes the lake's rows of a table that has been in its publication as one of `seen`, without a gap."""
    for _ in range(10):
        known = lake.tables.read(source.name).values()
        ours = [row for row in known if row.relation_id == member.oid and row.state != ENDED]
        rows = [row.after(**changes) for row in ours if row.published_id in seen or row.moving_id in seen]
        if len(lake.tables.put(source.name, rows)) == len(rows):
            return
    raise Failure(f"{member.table_name} is being altered by others", f"source {source.name}", "Start the stream again")
