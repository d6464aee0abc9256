"""`tidemark set-writers`: another number of stream writers for a Postgres source, with its streams stopped.

The source stays in use, and no table is read again. A writer stays if its number is at most the new one; otherwise it
is removed.

1. Refuse, with nothing changed, if a process reads a slot of the source, a log is lost, or a table can't be moved.
2. Store the new number (`raw.sources.next_writers`). Until step 7, `run`, `stream` and `snapshot` refuse to start.
3. Create an empty publication and a slot for each new writer, store the slots' positions, then make the writers active.
   They start after every stored position, so the persisted position does not move back.
4. Move each table that is not with its assigned writer, by one transaction of the source: lock the table against
   writes, alter both publications, store the new `published_id` in the lake, commit. No other transaction has an open
   change of the table meanwhile, and each slot decodes by the publications at that point of the log. So what commits
   before belongs to the old writer, what commits after belongs to the new writer, and no transaction is split.
5. Take a position M after the last move.
6. Stream every writer that was active before up to M: each commits what belongs to it.
7. Make only the writers that stay active, and clear `next_writers`, in one commit to the lake.
8. Drop slots and publications of the removed writers. Each start of the source repeats this step.

Killed at any step, the command is run again, for the same number or another; each step skips what is done. In step 3 a
slot whose writer is not active is created again. In step 4 the lake may have a `published_id` that the source never
had: that table gets a new snapshot. Between steps 4 and 7 a writer may still have to read events of a table that has
moved. If its slot is lost then, the tables that lack events are not known: only `resnapshot --all` is possible.

A stream that was not connected in step 1 does no harm: it reads its slot as the command would, and ends when the slot
is dropped.
"""

import logging
import time
from collections.abc import Collection
from contextlib import ExitStack

import psycopg
from psycopg import sql

from ingest.common.errors import Failure, one_line
from ingest.common.log_repeats import Repeats
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.lake.source_tables import ENDED, RUNNING
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.catalog.publications import Member
from ingest.sources.postgres.postgres_connection import TRANSIENT_ERRORS, Connection
from ingest.sources.postgres.replication.replication_feed import PostgresFeed
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.writers import postgres_writers, table_assignment
from ingest.stream.stream_writer import StreamWriter

_log = logging.getLogger(__name__)

# How long writes to a table wait: while the command waits for open transactions, and while it moves the table.
LOCK_TIMEOUT, HOLD_TIMEOUT = "1s", "10s"
# Seconds between attempts to move tables with open transactions.
RETRY_SECONDS = 5.0


def set_writers(lake: Lake, source: PostgresSource, settings: JobSettings) -> None:
    """Gives the lake the writers 1 to `source.writers`. Waits for open transactions.

    Raises Failure if the change is refused or was interrupted; it can be run again.
    """
    try:
        with postgres_writers.exclusive_connections(source, settings) as (connection, replication):
            _set_writers(lake, source, settings, connection, replication)
    except (psycopg.OperationalError, psycopg.errors.IdleInTransactionSessionTimeout) as error:
        raise Failure(
            f"the connection to Postgres was lost ({one_line(str(error))})",
            f"source {source.name}",
            f"Run `tidemark set-writers {source.name}` again",
        ) from None


def _set_writers(
    lake: Lake, source: PostgresSource, settings: JobSettings, connection: Connection, replication: Connection
) -> None:
    before, after = lake.sources.read_active_writers(source.name), frozenset(range(1, source.writers + 1))
    if not before:
        return  # the first start creates them
    _check_change(lake, source, connection, replication, before)
    lake.sources.set_active_writers(source.name, before, source.writers)
    publications.create_empty(connection, {writer: source.publication_of(writer) for writer in after})
    if new := after - before:
        with ExitStack() as opened:
            postgres_writers.create_writers(lake, source, settings, connection, replication, new, opened)
    lake.sources.set_active_writers(source.name, before | after, source.writers)
    _move_tables(connection, lake, source, before | after)
    _check_empty(connection, source, before - after)
    until = catalog_tables.emit_marker(connection)
    for writer, position in sorted(postgres_writers.stored_positions(lake, source).items()):
        if writer in before:
            feed = PostgresFeed(lake, source, settings, position)
            StreamWriter(lake, feed, position, settings).run(until=until)
    lake.sources.set_active_writers(source.name, after)
    stored = postgres_writers.stored_positions(lake, source)
    postgres_writers.drop_removed_writers(connection, lake, source, after, stored)


def _check_change(
    lake: Lake, source: PostgresSource, connection: Connection, replication: Connection, active: Collection[int]
) -> None:
    """Raises Failure if the number of writers can't be changed now."""
    for _, position in sorted(postgres_writers.stored_positions(lake, source).items()):
        if position.writer in active:
            replication_slots.wait_until_free(connection, position.slot, source.name)
    postgres_writers.check_writers(lake, source, connection, replication, active)
    running = sorted(table.table_name for table in lake.tables.read(source.name).values() if table.state == RUNNING)
    if running and not source.soft_deletes:  # the stream would have to wait for the snapshot
        raise Failure(
            f"the snapshot of {running[0]} is not complete, and soft_deletes is false",
            f"source {source.name}",
            "Let `tidemark snapshot` complete it, or queue it again by `tidemark resnapshot`",
        )
    removed = {writer: source.publication_of(writer) for writer in active if writer > source.writers}
    _check_empty(connection, source, removed.keys() - publications.select_owned(connection, removed).keys())
    table_assignment.plan_moves(connection, source, active)


def _check_empty(connection: Connection, source: PostgresSource, removed: Collection[int]) -> None:
    """Raises Failure if the publication of a writer to be removed has a table."""
    for writer in sorted(removed):
        name = source.publication_of(writer)
        if publications.read(connection, {writer: name}):
            raise Failure(
                f"writer {writer} can't be removed: its publication has tables that Tidemark does not move",
                f"source {source.name}, publication {name}",
                f"Put them into the publication of another writer, and run `tidemark set-writers {source.name}` again",
            )


def _move_tables(connection: Connection, lake: Lake, source: PostgresSource, writers: Collection[int]) -> None:
    """Moves each table to its assigned writer. Waits for open transactions that have changed one."""
    repeats = Repeats(_log)
    while True:
        table_assignment.unpublish_attached(connection, lake, source)
        with table_assignment.locked(connection, source, "tables"):
            moves = table_assignment.plan_moves(connection, source, writers)
            busy = [member.table_name for member, to in moves if not _move_table(connection, lake, source, member, to)]
        if not busy:
            return
        repeats.occurred(f"source {source.name}: waits for open transactions on {', '.join(busy)}", key="busy")
        time.sleep(RETRY_SECONDS)


def _move_table(connection: Connection, lake: Lake, source: PostgresSource, member: Member, writer: int) -> bool:
    """Moves a table to `writer` by one transaction; false: another transaction uses it."""
    old, new = source.publication_of(member.writer), source.publication_of(writer)
    table = sql.Identifier(member.schema, member.name)
    try:
        with connection.transaction():
            # If this process is suspended while it has the lock, the server ends the transaction.
            connection.execute(sql.SQL("SET LOCAL idle_in_transaction_session_timeout = {}").format(HOLD_TIMEOUT))
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_TIMEOUT))
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(table))
            published_id = publications.move_table(connection, old, new, member)
            # Before the commit: a table with a `published_id` that the lake does not have gets a new snapshot.
            _store_move(lake, source, member, published_id, writer)
    except (*TRANSIENT_ERRORS, psycopg.errors.DeadlockDetected):
        return False
    except psycopg.errors.ProgrammingError as error:
        raise Failure(
            f"{member.table_name} can't be moved to another publication ({error.diag.message_primary or error})",
            f"source {source.name}, publication {new}",
            f"Make the role of the DSN its owner, and run `tidemark set-writers {source.name}` again",
        ) from None
    _log.info("%s: %s moves from writer %d to writer %d", source.name, member.table_name, member.writer, writer)
    return True


def _store_move(lake: Lake, source: PostgresSource, member: Member, published_id: int, writer: int) -> None:
    """Stores a table's writer and `published_id`, unless the lake does not know the present one."""
    rows = [
        row.with_changes(published_id=published_id, writer=writer)
        for row in lake.tables.read(source.name).values()
        if row.relation_id == member.oid and row.published_id == member.published_id and row.state != ENDED
    ]
    if len(lake.tables.upsert(source.name, rows)) != len(rows):
        raise Failure(
            f"another process changed {member.table_name} in the lake",
            f"source {source.name}",
            f"End all processes of the source, and run `tidemark set-writers {source.name}` again",
        )
