"""The writers of a Postgres source: opened, begun anew, and let go.

A writer has a slot, a publication and positions of its own; the source's position is the minimum over those that count
(`raw.sources`). It counts from before it is given a table until it has none left and has passed the moment when the
last one was taken from it. One process at a time opens and lets go.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial

import psycopg

from ingest.config import PostgresSource
from ingest.errors import Failure
from ingest.lake import Lake
from ingest.positions import Position, current, format_lsn, parse_lsn
from ingest.postgres import catalog, publications, sharing, slots
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import CannotConnect, Connection, connect
from ingest.postgres.slots import Held, System
from ingest.settings import JobSettings

_log = logging.getLogger(__name__)

# Between looks whether a writer that is to leave may, at first and at the longest: each look has whoever writes into a
# busy table wait for a moment.
_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 2.0, 60.0


def open_writers(lake: Lake, source: PostgresSource, settings: JobSettings) -> tuple[dict[int, Position], Held | None]:
    """Where each writer goes on, those that are to leave included, and a snapshot that a slot exported if the last one
    was made just now.

    Makes the publications and slots that are missing, and stores a slot's consistent point before anything is streamed.
    A slot that was made but whose position was never stored is taken over as it is: nothing was acknowledged, so
    nothing is missing. Raises Failure.
    """
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_seconds
    held: Held | None = None
    with (
        connect(dsn, connect_seconds=seconds) as connection,
        connect(dsn, replication=True, connect_seconds=seconds) as replication,
        sharing.locked(connection, source, "writers"),
    ):
        system = slots.identify(replication)
        usable = _publish(source, connection)
        # Whoever streams stores first, and acknowledges after: what a slot says is asked for before the positions.
        found = slots.states(connection)
        stored, counting = _stored(lake, source), lake.writers(source.name)
        made_for = _made_for(lake, source, connection, usable)
        positions = {}
        for writer in sorted({*range(1, source.writers + 1), *counting}):
            if writer in counting:
                positions[writer] = stored[writer]
                slots.check(connection, replication, stored[writer], found.get(stored[writer].slot))
                continue
            if writer in stored:
                slots.drop(connection, stored[writer].slot, source.name)  # it has left: what it had to read is read
            start, made = _slot(source, settings, connection, writer, made_for)
            positions[writer] = _begin(lake, source, system, writer, start)
            held = _newer(held, made)
        for writer in stored.keys() - positions.keys():
            _clear_up(connection, source, stored[writer])
    _say(source, positions)
    if held is not None and held.lsn < max(position.start_position for position in positions.values()):
        held.close()  # what another writer streams may have changed in between
        held = None
    return positions, held


def start_over(lake: Lake, source: PostgresSource, settings: JobSettings) -> None:
    """Makes new slots in place of the writers' own, and queues new snapshots of all tables.

    For when the log was lost. What was landed before stays as it was, up to the positions that were
    stored. Raises Failure, with nothing changed, while somebody streams
    from a slot, and where the server's log is behind what is landed. Ended before its end, it has to be done again.
    """
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_seconds
    with connect(dsn, connect_seconds=seconds) as connection, sharing.locked(connection, source, "writers"):
        with connect(dsn, replication=True, connect_seconds=seconds) as replication:
            system = slots.identify(replication)
        stored, counting = _stored(lake, source), lake.writers(source.name)
        names = [source.slot_of(writer) for writer in {*range(1, source.writers + 1), *counting}]
        _check_may_start_over(connection, source, stored.values(), names)
        lake.tables.queue(source.name, "the log was lost")
        _publish(source, connection)
        sharing.share_out(connection, lake, source)
        leaving = {w: source.publication_of(w) for w in counting if w > source.writers}
        if left := publications.members(connection, publications.ours(connection, leaving)):
            raise Failure(
                f"{left[0].table_name} is held by a transaction, and can't be given to another writer",
                f"source {source.name}",
                "Try again when that has ended",
            )
        for name in names:
            slots.drop(connection, name, source.name)
        starts = {}
        for writer in range(1, source.writers + 1):
            starts[writer], held = _slot(source, settings, connection, writer, {})
            if held is not None:
                held.close()  # it was made for what was queued before
        # Again: a snapshot that somebody began meanwhile may be older than the slots.
        lake.tables.queue(source.name, "the log was lost")
        for writer, start in starts.items():
            _begin(lake, source, system, writer, start)
        lake.count_writers(source.name, range(1, source.writers + 1))


def _check_may_start_over(
    connection: Connection, source: PostgresSource, stored: Iterable[Position], names: Iterable[str]
) -> None:
    at = slots.current_lsn(connection)
    landed = max((position.position for position in stored), default=0)
    if at < landed:
        raise Failure(
            f"the server's log stands at {format_lsn(at)}, behind what is landed ({format_lsn(landed)}), "
            "so its changes could not be told from older ones",
            f"source {source.name}",
            "Give it another name in sources.yml, so that it is another source",
        )
    for name in names:
        slots.check_droppable(connection, name, source.name)


def _stored(lake: Lake, source: PostgresSource) -> dict[int, Position]:
    """By writer, also of those that have left."""
    return {writer: position for (_, writer), position in current(lake.positions(source.name)).items()}


def _publish(source: PostgresSource, connection: Connection) -> list[CatalogTable]:
    """See to the publications; the tables that can be published."""
    usable = [t for t in catalog.tables(connection, source.selects) if not t.problem]
    publications.make(connection, {w: source.publication_of(w) for w in range(1, source.writers + 1)}, usable)
    return usable


def _made_for(
    lake: Lake, source: PostgresSource, connection: Connection, tables: Iterable[CatalogTable]
) -> dict[str, int]:
    """The `rev` (1: to be registered) of the tables, by table_id, that may be read under a slot which is made now: of
    one that is not published yet, changes until it is would be missing.
    """
    known, names = lake.tables.read(source.name), {*range(1, source.writers + 1), *lake.writers(source.name)}
    published = publications.read(connection, {writer: source.publication_of(writer) for writer in names})
    ids = [table.table_id(source.name) for table in tables if publications.sends(published, table)]
    return {table_id: known[table_id].rev if table_id in known else 1 for table_id in ids}


def _slot(
    source: PostgresSource, settings: JobSettings, connection: Connection, writer: int, made_for: Mapping[str, int]
) -> tuple[int, Held | None]:
    """Where a writer's slot begins; and what it exported, if it was made now."""
    slot = source.slot_of(writer)
    found = slots.when_free(connection, slot, source.name)
    if found is None:
        held = slots.create(source.dsn.get_secret_value(), slot, made_for, seconds=settings.connect_seconds)
        return held.lsn, held
    slots.usable(connection, found, slot, source.name)
    return parse_lsn(found["confirmed_flush_lsn"]), None


def _begin(lake: Lake, source: PostgresSource, system: System, writer: int, start: int) -> Position:
    """A writer's first position, from which on it counts."""
    slot = source.slot_of(writer)
    position = Position(source.name, writer, slot, system.system_id, system.timeline, start, start)
    lake.store(position)
    lake.count_writers(source.name, {*lake.writers(source.name), writer})
    _log.info("%s: slot %s starts at %s", source.name, slot, format_lsn(start))
    return position


def _newer(held: Held | None, made: Held | None) -> Held | None:
    if held is not None and made is not None:
        held.close()
    return made or held


def _clear_up(connection: Connection, source: PostgresSource, left: Position) -> None:
    """Of a writer that has left: a slot that nobody reads would keep the log for ever."""
    found = slots.state(connection, left.slot)
    if found and not found["active"]:
        slots.drop(connection, left.slot, source.name)
    publications.drop_if_empty(connection, source.publication_of(left.writer))


def _say(source: PostgresSource, positions: Mapping[int, Position]) -> None:
    """What was loaded, for whoever reads the log."""
    at = ", ".join(f"writer {writer} at {format_lsn(p.position)}" for writer, p in sorted(positions.items()))
    lowest = min(position.position for position in positions.values())
    _log.info("source %s: %s; all is landed up to %s", source.name, at, format_lsn(lowest))


class Departure:
    """How a writer that `sources.yml` no longer asks for leaves. For the thread that runs it."""

    def __init__(self, lake: Lake, source: PostgresSource, settings: JobSettings, position: Position) -> None:
        self._lake = lake
        self._source = source
        self._position = position
        self._connect = partial(connect, source.dsn.get_secret_value(), connect_seconds=settings.connect_seconds)
        self._publication = {position.writer: source.publication_of(position.writer)}
        self._target: int | None = None
        self._owners: dict[int, int] = {}
        self._next = 0.0
        self._pause = _LOOK_SECONDS

    def target(self) -> int | None:
        """The position that it has to pass; None for as long as it has a table."""
        if self._target is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_LOOK_SECONDS)
            try:
                with self._connect() as connection:
                    self._target = self._look(connection)
            except (CannotConnect, psycopg.OperationalError) as error:
                _log.warning("it can't be seen whether writer %d may leave (%s)", self._position.writer, error)
        return self._target

    def leave(self) -> None:
        """It has passed the target, and doesn't count any more; its slot is dropped, and its publication.

        Raises Failure if it may have had a table again meanwhile, whose changes it has yet to land.
        """
        source, writer = self._source, self._position.writer
        with self._connect() as connection:
            slots.when_free(connection, self._position.slot, source.name)
            with sharing.locked(connection, source, "writers"), sharing.locked(connection, source, "tables"):
                published = self._published(connection)
                was_moved = any(self._owners.get(oid, now) != now for oid, now in published.items())
                if was_moved or publications.read(connection, self._publication):
                    raise Failure(
                        f"tables were moved while writer {writer} left",
                        f"source {source.name}",
                        "Have one sources.yml for all processes, and start the stream again",
                    )
                self._lake.count_writers(source.name, self._lake.writers(source.name) - {writer})
                _clear_up(connection, source, self._position)
        _log.info("source %s: writer %d has left", source.name, writer)

    def _look(self, connection: Connection) -> int | None:
        if publications.read(connection, self._publication):
            sharing.share_out(connection, self._lake, self._source)
        with sharing.locked(connection, self._source, "tables"):
            self._owners = self._published(connection)
            if publications.read(connection, self._publication):
                return None
            return catalog.watermark(connection)

    def _published(self, connection: Connection) -> dict[int, int]:
        """The published_id of every table of the source: another one when it was moved, be it there and back."""
        writers = self._lake.writers(self._source.name)
        names = {writer: self._source.publication_of(writer) for writer in writers}
        return {oid: one.published_id for oid, one in publications.read(connection, names).items()}
