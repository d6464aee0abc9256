"""Restarts writers whose log is lost: new slots, and new snapshots of all tables that lack events.

Committed events stay, up to the stored positions. An interrupted reset has to be repeated; until then the stream does
not start.
"""

from collections.abc import Collection, Iterable, Mapping

from ingest.common.errors import Failure, UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.position import Position, format_lsn
from ingest.sources.postgres.catalog import publications
from ingest.sources.postgres.postgres_connection import Connection
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.slots.replication_slots import ServerIdentity
from ingest.sources.postgres.writers import table_assignment
from ingest.sources.postgres.writers.postgres_writers import (
    check_number,
    exclusive_connections,
    publish_tables,
    store_first_position,
    stored_positions,
)

_NOTE = "the log was lost"


def start_over(lake: Lake, source: PostgresSource, settings: JobSettings) -> None:
    """Restarts all writers that `source` has, with all tables, also if `tidemark set-writers` can't be completed.

    Raises Failure, with nothing changed, while a process streams from a slot, if a table can't be moved to its assigned
    writer, and if the server's log is behind the stored positions.
    """
    with exclusive_connections(source, settings) as (connection, replication):
        server = replication_slots.identify_server(replication)
        stored, active = stored_positions(lake, source), lake.sources.read_active_writers(source.name)
        writers = range(1, source.writers + 1)
        slots = _find_slots(connection, source, server, {w: stored.get(w) for w in {*writers, *active}})
        _check_log_is_ahead(connection, source, stored.values())
        _check_droppable(connection, source, slots)
        table_assignment.plan_moves(connection, source, active)
        lake.tables.queue_snapshots(source.name, _NOTE)
        publish_tables(source, connection)
        for member, writer in table_assignment.plan_moves(connection, source, active):
            with connection.transaction():
                old, new = source.publication_of(member.writer), source.publication_of(writer)
                publications.move_table(connection, old, new, member)
        starts = _create_slots(connection, source, settings, slots, writers)
        # Again: a snapshot that another process started meanwhile may be older than the slots.
        lake.tables.queue_snapshots(source.name, _NOTE)
        for position in stored_positions(lake, source).values():  # as the old slots left them
            lake.delete_events_from(position)
        # A removed writer has lost its log too, in case it returns.
        last = max(starts.values())
        for writer in {*starts, *active}:
            store_first_position(lake, source, server, writer, starts.get(writer, last))
        lake.sources.set_active_writers(source.name, writers)


def start_over_writers(
    lake: Lake, source: PostgresSource, settings: JobSettings, writers: Collection[int]
) -> list[str]:
    """Restarts some writers while the others continue; the names of their tables, which are queued.

    Raises UsageError for a writer that does not exist; Failure, with nothing changed, if the lake has another number of
    writers than `source`, while a process streams from one of the slots, and if all of the source has to be restarted.
    """
    with exclusive_connections(source, settings) as (connection, replication):
        stored, source_writers = stored_positions(lake, source), lake.sources.read_writers(source.name)
        check_number(source, source_writers)
        active = source_writers.active
        if unknown := sorted(set(writers) - active):
            existing = ", ".join(map(str, sorted(active))) or "none yet"
            raise UsageError(f"there is no writer {unknown[0]}", f"source {source.name}", f"Its writers are {existing}")
        lost = {writer: stored[writer] for writer in writers}
        server = replication_slots.identify_server(replication)
        for position in lost.values():
            slot_continuity.check_log(connection, replication, position)
        slots = _find_slots(connection, source, server, lost)
        _check_droppable(connection, source, slots)
        queued = _queue_tables(lake, source, connection, lost)
        starts = _create_slots(connection, source, settings, slots, writers)
        # Again: a snapshot that another process started meanwhile may be older than the slots.
        queued |= _queue_tables(lake, source, connection, lost)
        stored = stored_positions(lake, source)  # as the old slots left them
        for writer, start in starts.items():
            lake.delete_events_from(stored[writer])
            store_first_position(lake, source, server, writer, start)
    return sorted(queued)


def _find_slots(
    connection: Connection, source: PostgresSource, server: ServerIdentity, stored: Mapping[int, Position | None]
) -> set[str]:
    """The names of these writers' slots: as `sources.yml` has them, and as they were before it was edited."""
    before = {p.slot for p in stored.values() if p and p.system_id == server.system_id}
    slots = replication_slots.read_slots(connection)
    return {
        *map(source.slot_of, stored),
        *(slot for slot in before if replication_slots.is_writer_slot(connection, slots.get(slot))),
    }


def _create_slots(
    connection: Connection, source: PostgresSource, settings: JobSettings, old: Iterable[str], writers: Iterable[int]
) -> dict[int, int]:
    """Drops the slots `old` and creates these writers' slots; the position where each starts."""
    for name in old:
        replication_slots.drop_slot(connection, name, source.name)
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
    starts = {}
    for writer in writers:
        exported = replication_slots.create_slot(dsn, source.slot_of(writer), {}, seconds=seconds)
        exported.close()  # the tables are queued, and read later
        starts[writer] = exported.lsn
    return starts


def _check_log_is_ahead(connection: Connection, source: PostgresSource, stored: Iterable[Position]) -> None:
    current = replication_slots.read_current_lsn(connection)
    committed = max((position.position for position in stored), default=0)
    if current < committed:
        raise Failure(
            f"the server's log is at {format_lsn(current)}, behind what is committed ({format_lsn(committed)}), "
            "so its changes could not be distinguished from older ones",
            f"source {source.name}",
            "Give it another name in sources.yml, so that it is another source",
        )


def _check_droppable(connection: Connection, source: PostgresSource, slots: Iterable[str]) -> None:
    for slot in slots:
        replication_slots.check_droppable(connection, slot, source.name)


def _queue_tables(lake: Lake, source: PostgresSource, connection: Connection, lost: Mapping[int, Position]) -> set[str]:
    """Queues the tables that lack the events of these writers: those that they publish, or had at the last sync."""
    with table_assignment.locked(connection, source, "tables"):
        published = publications.read(connection, {writer: source.publication_of(writer) for writer in lost})
        names = {
            table.table_name
            for table in lake.tables.read(source.name).values()
            if table.writer in lost
            or not published.keys().isdisjoint([table.relation_id, *(p.partition_id for p in table.partitions)])
        }
        return set(lake.tables.queue_snapshots(source.name, _NOTE, names))
