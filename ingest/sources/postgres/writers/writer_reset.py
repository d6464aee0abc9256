"""Writers begun anew after their log was lost: new slots, and new snapshots of all tables that had a part in it.

What was landed before stays as it was, up to the positions that were stored. Ended before its end, it has to be done
again: until then the stream is refused.
"""

from collections.abc import Collection, Iterable, Mapping

from ingest.common.errors import Failure, UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.position import Position, format_lsn
from ingest.sources.postgres.catalog import publications
from ingest.sources.postgres.postgres_connection import Connection, connect
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.slots.replication_slots import ServerIdentity
from ingest.sources.postgres.writers import table_assignment
from ingest.sources.postgres.writers.postgres_writers import begin, publish, stored_positions

_NOTE = "the log was lost"


def start_over(lake: Lake, source: PostgresSource, settings: JobSettings) -> None:
    """All writers, with all tables of the source.

    Raises Failure, with nothing changed, while somebody streams from a slot, and where the server's log is behind what
    is landed.
    """
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
    with (
        connect(dsn, connect_timeout_seconds=seconds) as connection,
        table_assignment.locked(connection, source, "writers"),
    ):
        with connect(dsn, replication=True, connect_timeout_seconds=seconds) as replication:
            system = replication_slots.identify_server(replication)
        stored, counting = stored_positions(lake, source), lake.active_writers(source.name)
        writers = range(1, source.writers + 1)
        names = _slots(connection, source, system, {w: stored.get(w) for w in {*writers, *counting}})
        _check_may_start_over(connection, source, stored.values(), names)
        lake.tables.queue_snapshots(source.name, _NOTE)
        publish(source, connection)
        table_assignment.share_out(connection, lake, source)
        _check_all_moved(connection, source, counting)
        starts = _new_slots(connection, source, settings, names, writers)
        # Again: a snapshot that somebody began meanwhile may be older than the slots.
        lake.tables.queue_snapshots(source.name, _NOTE)
        # One that leaves has lost its log too, should it ever come back.
        last = max(starts.values())
        for position in stored_positions(lake, source).values():  # as the old slots left them
            lake.delete_events_from(position)
        for writer in {*starts, *counting}:
            begin(lake, source, system, writer, starts.get(writer, last))
        lake.set_active_writers(source.name, writers)


def start_over_writers(
    lake: Lake, source: PostgresSource, settings: JobSettings, writers: Collection[int]
) -> list[str]:
    """Some writers; gives the names of the tables that are queued: those that they have, or may have had since they
    last stored a position. The others go on meanwhile.

    Raises UsageError for a writer that doesn't count; Failure, with nothing changed, while somebody streams from a slot
    of theirs, and where all of the source has to begin anew.
    """
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
    with (
        connect(dsn, connect_timeout_seconds=seconds) as connection,
        table_assignment.locked(connection, source, "writers"),
    ):
        stored, counting = stored_positions(lake, source), lake.active_writers(source.name)
        if unknown := sorted(set(writers) - counting):
            has = ", ".join(map(str, sorted(counting))) or "none yet"
            raise UsageError(f"there is no writer {unknown[0]}", f"source {source.name}", f"Its writers are {has}")
        lost = {writer: stored[writer] for writer in writers}
        with connect(dsn, replication=True, connect_timeout_seconds=seconds) as replication:
            system = replication_slots.identify_server(replication)
            for position in lost.values():
                slot_continuity.check_log(connection, replication, position)
        names = _slots(connection, source, system, lost)
        for name in names:
            replication_slots.check_droppable(connection, name, source.name)
        queued = _queue(lake, source, connection, lost)
        starts = _new_slots(connection, source, settings, names, writers)
        # Again: a snapshot that somebody began meanwhile may be older than the slots.
        queued |= _queue(lake, source, connection, lost)
        left = stored_positions(lake, source)
        for writer, start in starts.items():
            lake.delete_events_from(left[writer])
            begin(lake, source, system, writer, start)
    return sorted(queued)


def _slots(
    connection: Connection, source: PostgresSource, system: ServerIdentity, stored: Mapping[int, Position | None]
) -> set[str]:
    """The names of these writers' slots: as `sources.yml` has them, and as they were before it was changed."""
    before = {p.slot for p in stored.values() if p and p.system_id == system.system_id}
    return {
        *map(source.slot_of, stored),
        *(
            slot
            for slot in before
            if replication_slots.is_writer_slot(connection, replication_slots.read_slot(connection, slot))
        ),
    }


def _new_slots(
    connection: Connection,
    source: PostgresSource,
    settings: JobSettings,
    names: Iterable[str],
    writers: Iterable[int],
) -> dict[int, int]:
    """Drops slots and makes these writers' anew; where each begins."""
    for name in names:
        replication_slots.drop_slot(connection, name, source.name)
    starts = {}
    for writer in writers:
        slot = source.slot_of(writer)
        held = replication_slots.create_slot(
            source.dsn.get_secret_value(), slot, {}, seconds=settings.connect_timeout_seconds
        )
        held.close()  # what is queued now is to be read later
        starts[writer] = held.lsn
    return starts


def _check_may_start_over(
    connection: Connection, source: PostgresSource, stored: Iterable[Position], names: Iterable[str]
) -> None:
    at = replication_slots.read_current_lsn(connection)
    landed = max((position.position for position in stored), default=0)
    if at < landed:
        raise Failure(
            f"the server's log stands at {format_lsn(at)}, behind what is landed ({format_lsn(landed)}), "
            "so its changes could not be told from older ones",
            f"source {source.name}",
            "Give it another name in sources.yml, so that it is another source",
        )
    for name in names:
        replication_slots.check_droppable(connection, name, source.name)


def _check_all_moved(connection: Connection, source: PostgresSource, counting: Iterable[int]) -> None:
    leaving = {w: source.publication_of(w) for w in counting if w > source.writers}
    if left := publications.members(connection, publications.ours(connection, leaving)):
        raise Failure(
            f"{left[0].table_name} is held by a transaction, and can't be given to another writer",
            f"source {source.name}",
            "Try again when that has ended",
        )


def _queue(lake: Lake, source: PostgresSource, connection: Connection, lost: Mapping[int, Position]) -> set[str]:
    """Queues the tables whose changes are lost with these writers: what they publish, have, or had when they stored."""
    with table_assignment.locked(connection, source, "tables"):
        published = publications.read(connection, {writer: source.publication_of(writer) for writer in lost})
        since = min(position.position for position in lost.values())
        names = {
            table.table_name
            for table in lake.tables.read(source.name).values()
            if table.writer in lost
            or (table.moved_lsn or 0) > since
            or not published.keys().isdisjoint([table.relation_id, *(leaf.partition_id for leaf in table.partitions)])
        }
        return set(lake.tables.queue_snapshots(source.name, _NOTE, names))
