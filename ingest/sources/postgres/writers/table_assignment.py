"""Which writer streams which table: the one whose publication has the table.

A table stays in its publication. A new table goes into that of its assigned writer (`publications.assigned_writer`).
Only `tidemark set-writers` moves tables (see `writer_count`), and `tidemark resnapshot --all` (see `writer_reset`). One
process at a time alters publications.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from ingest.common.errors import Failure
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.sources.postgres.catalog import publications
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.catalog.publications import Member
from ingest.sources.postgres.postgres_connection import Connection
from ingest.sources.postgres.slots.replication_slots import Cancelled

_log = logging.getLogger(__name__)

# Seconds between attempts to take a lock, and until the first report of the process that has it; each later report
# comes after twice the time.
_RETRY_SECONDS, _REPORT_SECONDS = 0.2, 2.0
_LOCKED_BY = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32 | objid::bigint) = hashtextextended(%s, 0)
"""


def sleep(seconds: float) -> bool:
    """Sleeps; never cancelled."""
    time.sleep(seconds)
    return False


@contextmanager
def locked(
    connection: Connection, source: PostgresSource, subject: str, wait: Callable[[float], bool] = sleep
) -> Iterator[None]:
    """Within it, no other process changes `subject` of the same source: `writers` or `tables`.

    wait: sleeps some seconds while another process has the lock; true: stop waiting. Raises Cancelled then.
    """
    key = [f"tidemark {subject} of {source.slot}"]
    start, next_report = time.monotonic(), _REPORT_SECONDS
    attempt = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
    while connection.execute(attempt, key).fetchone() != (True,):
        if (waited := time.monotonic() - start) >= next_report:
            next_report = 2 * waited
            pids = ", ".join(str(pid) for (pid,) in connection.execute(_LOCKED_BY, key)) or "that has just ended"
            message = "source %s: has waited %d s for process %s of the server, which changes its %s"
            _log.warning(message, source.name, waited, pids, subject)
        if wait(_RETRY_SECONDS):
            raise Cancelled
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", key)


def publish_new_tables(
    connection: Connection,
    lake: Lake,
    source: PostgresSource,
    tables: Sequence[CatalogTable],
    wait: Callable[[float], bool] = sleep,
) -> None:
    """Adds each new table to the publication of its assigned writer. wait: see `locked`."""
    with locked(connection, source, "tables", wait):
        names = _owned_publications(connection, source, lake.sources.read_active_writers(source.name))
        published = publications.read(connection, names)
        writers = [writer for writer in names if writer <= source.writers]
        for table in tables:
            if writers and table.is_owned and not publications.contains(published, table):
                writer = publications.assigned_writer(table.table_name, writers)
                publications.add_table(connection, names[writer], table)


def unpublish_attached(
    connection: Connection, lake: Lake, source: PostgresSource, wait: Callable[[float], bool] = sleep
) -> None:
    """Removes tables that have become partitions of another table from Tidemark's publications: they are published with
    the partitioned table, and would be streamed twice if that has another writer. wait: see `locked`.
    """
    with locked(connection, source, "tables", wait):
        active = lake.sources.read_active_writers(source.name)
        owned = _owned_publications(connection, source, active)
        names = {writer: source.publication_of(writer) for writer in active}
        for member in publications.select_attached(publications.read_members(connection, names)):
            if member.writer in owned:
                _queue_roots(lake, source, member)
                publications.drop_table(connection, owned[member.writer], member)
                # Again: a snapshot that began before the partition left the publication may lack rows.
                _queue_roots(lake, source, member)
                _log.info("%s is published with the table that it is a partition of now", member.table_name)


def _queue_roots(lake: Lake, source: PostgresSource, member: Member) -> None:
    """Queues the tables that `member` is a partition of, if its own row filter or column list held back changes."""
    if member.row_filter or member.columns:
        rows = lake.tables.read(source.name).values()
        names = [row.table_name for row in rows if row.relation_id in member.ancestors]
        reason = f"partition {member.table_name} had a row filter or column list of its own"
        lake.tables.queue_snapshots(source.name, reason, names)


def plan_moves(connection: Connection, source: PostgresSource, writers: Collection[int]) -> list[tuple[Member, int]]:
    """The tables in Tidemark's publications of `writers` that are not with their assigned writer, one of 1 to
    `source.writers`; each with that writer.

    Raises Failure for a table that can't be moved: another role owns it, or it is in several publications.
    """
    names = _owned_publications(connection, source, {*writers, *range(1, source.writers + 1)})
    staying = [writer for writer in names if writer <= source.writers]
    members = publications.read_members(connection, names)
    entries = Counter(member.oid for member in members)
    moves = []
    for member in members if staying else ():
        where = f"source {source.name}, table {member.table_name}"
        if entries[member.oid] > 1:
            several = ", ".join(names[other.writer] for other in members if other.oid == member.oid)
            raise Failure(f"it is in several publications: {several}", where, "Leave it in one of them")
        writer = publications.assigned_writer(member.table_name, staying)
        if writer == member.writer:
            continue
        if not member.is_owned:
            fix = "Grant the owner's role to the role of the DSN, or make that role the owner"
            raise Failure("its writer can't be changed: the role does not own it", where, fix)
        moves.append((member, writer))
    return moves


def _owned_publications(connection: Connection, source: PostgresSource, writers: Collection[int]) -> dict[int, str]:
    """The publications of `writers` that Tidemark created and may alter."""
    return publications.select_owned(connection, {writer: source.publication_of(writer) for writer in writers})
