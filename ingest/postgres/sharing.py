"""Which writer streams which table: shared out over the writers' publications.

A table changes its writer by one transaction of the source that alters both publications, and that commits when nobody
has an open change of the table. So its log is split between two transactions: what commits before is the old writer's,
what commits after the new one's. One process at a time alters publications.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

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

# For so long at most whoever writes into the table waits behind us.
LOCK_TIMEOUT = "1s"


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


def shares(owners: Mapping[str, int], writers: Sequence[int]) -> dict[str, int]:
    """Which tables are to change their writer, and to whom. Pure, and the same for the same input.

    owners: the writer of each table. writers: those that stay. Tables of others go to whoever has the fewest. Where one
    that stays has none and another several, all are evened out; else a person's own sharing out is left as it is.
    """
    held: dict[int, list[str]] = {writer: [] for writer in sorted(writers)}
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


def _fewest(held: Mapping[int, Sequence[str]]) -> int:
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
        found = {member.table_name: member for member in publications.members(connection, names)}
        owners = {name: member.writer for name, member in found.items()}
        staying = [writer for writer in names if writer <= source.writers]
        moves = shares(owners, staying) if staying else {}
        for name, writer in moves.items():
            if not found[name].owned:
                _log.warning("%s stays with writer %d: its owner has to move it", name, owners[name])
            elif _move(connection, lake, source, found[name], writer):
                _log.info("%s moves from writer %d to writer %d", name, owners[name], writer)
            else:
                _log.warning("%s stays with writer %d for now: a transaction holds it", name, owners[name])


def _ours(connection: Connection, lake: Lake, source: PostgresSource) -> dict[int, str]:
    """The publications of writers that count which we may alter: whatever is in them is waited for."""
    return publications.ours(connection, {w: source.publication_of(w) for w in lake.writers(source.name)})


def _move(connection: Connection, lake: Lake, source: PostgresSource, member: Member, writer: int) -> bool:
    """Whether the table is with `writer` now."""
    old, new = source.publication_of(member.writer), source.publication_of(writer)
    try:
        with connection.transaction():
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_TIMEOUT))
            moving_id = publications.swap(connection, old, new, member)
            # Before the commit: who sees the table in another publication must know that it was not taken out.
            _tell(lake, source, member, member.published_id, published_id=member.published_id, moving_id=moving_id)
            table = sql.Identifier(member.schema, member.name)
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(table))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        return False
    _tell(lake, source, member, moving_id, published_id=moving_id, moving_id=None, writer=writer)
    return True


def _tell(lake: Lake, source: PostgresSource, member: Member, seen: int, **changes: int | None) -> None:
    """Changes the lake's rows of a table that has been in its publication as `seen`, without a gap."""
    for _ in range(10):
        known = lake.tables.read(source.name).values()
        ours = [row for row in known if row.relation_id == member.oid and row.state != ENDED]
        rows = [row.after(**changes) for row in ours if seen in (row.published_id, row.moving_id)]
        if len(lake.tables.put(source.name, rows)) == len(rows):
            return
    raise Failure(f"{member.table_name} is being altered by others", f"source {source.name}", "Start the stream again")
