"""The writers of a Postgres source: opened, and what one that has left leaves behind cleared up.

A writer has a slot, a publication and positions of its own; the source's position is the minimum over those that count
(`raw.sources`). It counts from before it is given a table until it has none left and has passed the moment when the
last one was taken from it (see `writer_removal`). One process at a time opens and lets go.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import psycopg

from ingest.common.errors import Failure
from ingest.common.log_repeats import Repeats, StateLog
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.position import Position, current_epochs, format_lsn
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import Connection, connect, describe_locked_tables, with_lock_timeout
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.slots.replication_slots import ExportedSnapshot, ServerIdentity
from ingest.sources.postgres.writers import table_assignment

_log = logging.getLogger(__name__)
# The jobs of a source that fails come here with each new attempt.
_states = StateLog(_log)


def open_writers(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    running: Collection[int] | None = None,
    wait: Callable[[float], bool] = table_assignment.sleep,
) -> tuple[dict[int, Position], ExportedSnapshot | None]:
    """Where each writer goes on, those that are to leave included, and a snapshot that a slot exported if all were made
    just now. running: those that this process is to run (None: all); the slot of another may be lost, which is logged.
    wait: sleeps some seconds; true: stop waiting.

    Makes the publications and slots that are missing, and stores a slot's consistent point before anything is streamed.
    A slot whose position was never stored is created again. Raises Failure, Cancelled.
    """
    waiting = partial(_give_up_if, wait)
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
    held: ExportedSnapshot | None = None
    with (
        connect(dsn, connect_timeout_seconds=seconds) as connection,
        connect(dsn, replication=True, connect_timeout_seconds=seconds) as replication,
        table_assignment.locked(connection, source, "writers", wait),
    ):
        system = replication_slots.identify_server(replication)
        # Whoever streams stores first, and acknowledges after: what a slot says is asked for before the positions.
        found = replication_slots.read_slots(connection)
        stored, counting = stored_positions(lake, source), lake.active_writers(source.name)
        positions = {writer: stored[writer] for writer in counting}
        _check_database(connection, replication, positions.values(), found)
        for writer, at in positions.items():
            is_run = running is None or (writer if writer <= source.writers else 1) in running
            _check_slot(connection, at, found.get(at.slot), is_run=is_run)
        usable = publish(source, connection, waiting)
        made_for = {} if counting else _made_for(lake, source, connection, usable)
        for writer in sorted(set(range(1, source.writers + 1)) - counting):
            slot = source.slot_of(writer)
            if writer in stored:
                # A removed writer: its events are committed.
                replication_slots.drop_slot(connection, stored[writer].slot, source.name)
            # One that is there was made by a process that died before it stored where that begins.
            _check_nobodys(lake, source, system, found, slot)
            replication_slots.drop_slot(connection, slot, source.name)
            if writer not in stored and slot in found:
                _log.warning("source %s: slot %s was of no writer of this lake; it is made anew", source.name, slot)
            made = replication_slots.create_slot(dsn, slot, made_for, waiting, seconds)
            if writer in stored:
                lake.store_position(stored[writer].advanced_to(made.lsn))  # nothing of its own is in between
            positions[writer] = begin(lake, source, system, writer, made.lsn)
            # From now on it counts.
            lake.set_active_writers(source.name, {*lake.active_writers(source.name), writer})
            _log.info("%s: slot %s starts at %s", source.name, positions[writer].slot, format_lsn(made.lsn))
            if held is not None:
                held.close()
            held = made
        for writer in stored.keys() - positions.keys():
            clear_up(connection, lake, source, stored[writer])
        _say_what_is_left_over(lake, source, connection, positions)
    _say(source, positions)
    # What another writer streams may have changed in between; and what was modelled while a new one didn't count yet
    # may be later than its slot.
    if held is not None and (counting or held.lsn < max(one.start_position for one in positions.values())):
        held.close()
        held = None
    return positions, held


def _give_up_if(wait: Callable[[float], bool]) -> None:
    if wait(0):
        raise replication_slots.Cancelled


def check_database(lake: Lake, source: PostgresSource, settings: JobSettings, connection: Connection) -> None:
    """Raises Failure if the database behind a new connection is not the one whose log the lake has: behind a wrong DSN
    the lake's tables would all seem to have gone.
    """
    stored = stored_positions(lake, source)
    if counting := [stored[writer] for writer in lake.active_writers(source.name)]:
        dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
        with connect(dsn, replication=True, connect_timeout_seconds=seconds) as replication:
            _check_database(connection, replication, counting, replication_slots.read_slots(connection))


def _check_database(
    connection: Connection, replication: Connection, positions: Iterable[Position], found: Mapping[str, dict[str, Any]]
) -> None:
    for at in positions:
        slot_continuity.check_log(connection, replication, at)
        if at.slot in found:
            replication_slots.check_writer_slot(connection, found[at.slot], at.slot, at.source)


def stored_positions(lake: Lake, source: PostgresSource) -> dict[int, Position]:
    """By writer, also of those that have left."""
    return {writer: position for (_, writer), position in current_epochs(lake.positions(source.name)).items()}


def begin(lake: Lake, source: PostgresSource, system: ServerIdentity, writer: int, start: int) -> Position:
    """Store a writer's first position."""
    slot = source.slot_of(writer)
    position = Position(source.name, writer, slot, system.system_id, system.timeline, start, start)
    lake.store_position(position)
    return position


def publish(
    source: PostgresSource, connection: Connection, waiting: Callable[[], None] = lambda: None
) -> list[CatalogTable]:
    """Create or update the publications; the tables that can be published. Logs which locked tables it waits for.

    waiting: called while it waits; an exception from it ends the wait.
    """
    repeats = Repeats(_log)
    while True:
        try:
            with with_lock_timeout(connection):
                usable = [t for t in catalog_tables.read_tables(connection, source.selects) if not t.problem]
                names = {writer: source.publication_of(writer) for writer in range(1, source.writers + 1)}
                publications.make(connection, names, usable)
            return usable
        except psycopg.errors.LockNotAvailable:
            repeats.occurred(f"source {source.name}: {describe_locked_tables(connection)}", key="locked")
            waiting()


def _made_for(
    lake: Lake, source: PostgresSource, connection: Connection, tables: Iterable[CatalogTable]
) -> dict[str, int]:
    """The `rev` (1: to be registered) of the tables, by table_id, that may be read under a slot which is made now: of
    one that is not published yet, changes until it is would be missing.
    """
    known = lake.tables.read(source.name)
    published = publications.read(connection, {w: source.publication_of(w) for w in range(1, source.writers + 1)})
    ids = [table.table_id(source.name) for table in tables if publications.sends(published, table)]
    return {table_id: known[table_id].rev if table_id in known else 1 for table_id in ids}


def clear_up(connection: Connection, lake: Lake, source: PostgresSource, left: Position) -> None:
    """Of a writer that has left: a slot that nobody reads would keep the log for ever."""
    found = replication_slots.read_slot(connection, left.slot)
    if found and not found["active"] and left.slot not in _slots_of_others(lake, source, left.system_id):
        replication_slots.drop_slot(connection, left.slot, source.name)
    publications.drop_if_empty(connection, source.publication_of(left.writer))


def _slots_of_others(lake: Lake, source: PostgresSource, system_id: str) -> dict[str, str]:
    """Those of the other sources of a cluster, and whose they are: `shop_2` has one that may have been the second
    writer's of `shop`.
    """
    found = current_epochs(lake.positions())
    return {one.slot: of for (of, _), one in found.items() if of != source.name and one.system_id == system_id}


def _check_nobodys(
    lake: Lake, source: PostgresSource, system: ServerIdentity, found: Mapping[str, dict[str, Any]], slot: str
) -> None:
    """Raises Failure for a slot that is to be made anew, but is another source's."""
    others = _slots_of_others(lake, source, system.system_id)
    if slot in found and slot in others:
        raise Failure(
            f"the replication slot is that of source {others[slot]}, whose log would be lost",
            f"source {source.name}, slot {slot}",
            f"Name another slot in sources.yml; if source {others[slot]} is no more, drop the slot first",
        )


def _say_what_is_left_over(
    lake: Lake, source: PostgresSource, connection: Connection, positions: Mapping[int, Position]
) -> None:
    """Slots named as if they were another writer's: made by a process that died before it was stored."""
    system_id = next(iter(positions.values())).system_id
    known = {one.slot for one in positions.values()} | _slots_of_others(lake, source, system_id).keys()
    for name, found in replication_slots.read_slots(connection).items():
        number = name.removeprefix(f"{source.slot}_")
        is_numbered = number != name and number.isdigit() and int(number) > source.writers
        if (
            is_numbered
            and name not in known
            and not found["active"]
            and replication_slots.is_writer_slot(connection, found)
        ):
            _states.log_change(
                f"{source.name}, {name}",
                f"source {source.name}: slot {name} is of none of its writers, and keeps the log; if nobody else reads "
                f"it, SELECT pg_drop_replication_slot('{name}')",
                logging.WARNING,
            )


def _check_slot(connection: Connection, at: Position, found: dict[str, Any] | None, *, is_run: bool) -> None:
    """is_run: by this process; the slot of another is that one's concern."""
    try:
        slot_continuity.check_slot(connection, at, found)
    except Failure as error:
        if is_run:
            raise
        _states.log_change(f"{at.source}, {at.slot}", str(error), logging.WARNING)


def _say(source: PostgresSource, positions: Mapping[int, Position]) -> None:
    """What was loaded, for whoever reads the log."""
    at = ", ".join(f"writer {writer} at {format_lsn(p.position)}" for writer, p in sorted(positions.items()))
    lowest = min(position.position for position in positions.values())
    _states.log_change(source.name, f"source {source.name}: {at}; all is landed up to {format_lsn(lowest)}")
