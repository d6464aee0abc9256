"""The writers of a Postgres source: their start positions, and the slots and publications that are missing.

Each writer has a slot, a publication and stored positions. The source's position is the minimum over its active writers
(`raw.sources`). The first start creates the writers; after that only `tidemark set-writers` changes their number, see
`writer_count`. One process at a time does either.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import psycopg

from ingest.common.errors import Failure
from ingest.common.log_repeats import Repeats, StateLog
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.lake.source_states import SourceWriters
from ingest.positions.position import Position, current_epochs, format_lsn
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import Connection, connect, describe_locked_tables, with_lock_timeout
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.slots.replication_slots import ExportedSnapshot, ServerIdentity
from ingest.sources.postgres.writers import table_assignment

_log = logging.getLogger(__name__)
# Shared by all attempts to start a source's jobs, so that each state is logged once.
_states = StateLog(_log)


@contextmanager
def exclusive_connections(
    source: PostgresSource, settings: JobSettings, wait: Callable[[float], bool] = table_assignment.sleep
) -> Iterator[tuple[Connection, Connection]]:
    """A connection and a replication connection. Within it, no other process changes the source's writers.

    wait: see `table_assignment.locked`.
    """
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
    with (
        connect(dsn, connect_timeout_seconds=seconds) as connection,
        connect(dsn, replication=True, connect_timeout_seconds=seconds) as replication,
        table_assignment.locked(connection, source, "writers", wait),
    ):
        yield connection, replication


def open_writers(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    running: Collection[int] | None = None,
    wait: Callable[[float], bool] = table_assignment.sleep,
) -> tuple[dict[int, Position], ExportedSnapshot | None]:
    """The start position of each writer and, at the first start, the snapshot that the last slot exported.

    Creates missing publications; at the first start also the slots, and stores their positions before anything is
    streamed. running: the writers to run in this process (None: all); a lost slot of another writer is only logged.
    wait: sleeps some seconds; true: stop waiting.
    Raises Cancelled; Failure if the lake has another number of writers than `source`, or a log is lost.
    """
    waiting = partial(_check_cancelled, wait)
    exported: ExportedSnapshot | None = None
    with ExitStack() as opened, exclusive_connections(source, settings, wait) as (connection, replication):
        writers = lake.sources.read_writers(source.name)
        check_number(source, writers)
        active = writers.active
        stored = check_writers(lake, source, connection, replication, active, running)
        usable = publish_tables(source, connection, waiting)
        if not active:
            # No writer is active until all have stored a position: a first start that was killed is repeated.
            lake.sources.set_active_writers(source.name, ())
            numbers, queued = range(1, source.writers + 1), _queued_tables(lake, source, connection, usable)
            exported = create_writers(lake, source, settings, connection, replication, numbers, opened, queued, waiting)
            lake.sources.set_active_writers(source.name, numbers)
            active, stored = frozenset(numbers), stored_positions(lake, source)
        positions = {writer: stored[writer] for writer in active}
        drop_removed_writers(connection, lake, source, active, stored)
        _log_unused_slots(lake, source, connection, positions)
        opened.pop_all()  # the caller closes the snapshot
    _log_positions(source, positions)
    return positions, exported


def _check_cancelled(wait: Callable[[float], bool]) -> None:
    if wait(0):
        raise replication_slots.Cancelled


def check_number(source: PostgresSource, writers: SourceWriters) -> None:
    """Raises Failure if the lake has other writers than `source`. writers: none are active before the first start."""
    where = f"source {source.name}"
    fix = f"End all processes of the source and run `tidemark set-writers {source.name}`"
    if writers.next_writers is not None:
        raise Failure(f"the change to {writers.next_writers} writers is not complete", where, fix)
    active = writers.active
    if active and active != set(range(1, source.writers + 1)):
        problem = f"sources.yml has writers: {source.writers}, but the lake has {len(active)}"
        raise Failure(problem, where, f"{fix}, or configure `writers: {len(active)}`")


def check_writers(
    lake: Lake,
    source: PostgresSource,
    connection: Connection,
    replication: Connection,
    writers: Collection[int],
    running: Collection[int] | None = None,
) -> dict[int, Position]:
    """Raises Failure if the log of one of `writers` is lost. Returns the stored positions (see `stored_positions`).

    running: if given, a lost slot of any other writer is only logged.
    """
    # A running stream stores a position before it acknowledges it, so slots are read before positions.
    slots = replication_slots.read_slots(connection)
    stored = stored_positions(lake, source)
    positions = {writer: stored[writer] for writer in writers}
    _check_database(connection, replication, positions.values(), slots)
    for writer, position in positions.items():
        try:
            slot_continuity.check_slot(connection, position, slots.get(position.slot))
        except Failure as error:
            if running is None or writer in running:
                raise
            _states.log_change(f"{source.name}, {position.slot}", str(error), logging.WARNING)
    return stored


def create_writers(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    connection: Connection,
    replication: Connection,
    writers: Iterable[int],
    opened: ExitStack,
    queued: Mapping[str, int] | None = None,
    waiting: Callable[[], None] | None = None,
) -> ExportedSnapshot:
    """Creates the slots of inactive writers, at least one, and stores their positions; the last slot's snapshot.

    A slot of that name belongs to a removed writer, or to a process that was killed before it stored a position: it is
    created again. Raises Failure if it is another source's. opened: closes the snapshot. queued, waiting: see
    `replication_slots.create_slot`.
    """
    server = replication_slots.identify_server(replication)
    other_slots = _slots_of_other_sources(lake, source, server.system_id)
    stored = stored_positions(lake, source)
    exported: ExportedSnapshot | None = None
    for writer in sorted(writers):
        slot, before = source.slot_of(writer), stored.get(writer)
        if replication_slots.read_slot(connection, slot):
            if slot in other_slots:
                raise Failure(
                    f"the replication slot is that of source {other_slots[slot]}, whose log would be lost",
                    f"source {source.name}, slot {slot}",
                    f"Name another slot in sources.yml; if source {other_slots[slot]} no longer exists, drop the slot",
                )
            if before is None:
                _log.warning("source %s: slot %s was of no writer of this lake; it is recreated", source.name, slot)
        for name in {slot, before.slot if before else slot} - other_slots.keys():
            replication_slots.drop_slot(connection, name, source.name)
        dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
        exported = replication_slots.create_slot(dsn, slot, queued or {}, waiting, seconds)
        opened.close()  # only the last snapshot is used
        opened.callback(exported.close)
        if before:
            lake.positions.store(before.advanced_to(exported.lsn))  # it had no table in between
        store_first_position(lake, source, server, writer, exported.lsn)
        _log.info("%s: slot %s starts at %s", source.name, slot, format_lsn(exported.lsn))
    assert exported is not None
    return exported


def check_database(lake: Lake, source: PostgresSource, settings: JobSettings, connection: Connection) -> None:
    """Raises Failure if a new connection leads to another database than the lake's positions: with a wrong DSN, all
    tables would seem to be dropped.
    """
    stored = stored_positions(lake, source)
    if positions := [stored[writer] for writer in lake.sources.read_active_writers(source.name)]:
        dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
        with connect(dsn, replication=True, connect_timeout_seconds=seconds) as replication:
            _check_database(connection, replication, positions, replication_slots.read_slots(connection))


def _check_database(
    connection: Connection, replication: Connection, positions: Iterable[Position], slots: Mapping[str, dict[str, Any]]
) -> None:
    for position in positions:
        slot_continuity.check_log(connection, replication, position)
        if position.slot in slots:
            replication_slots.check_writer_slot(connection, slots[position.slot], position.slot, position.source)


def stored_positions(lake: Lake, source: PostgresSource) -> dict[int, Position]:
    """The stored positions by writer, including removed writers."""
    return {writer: position for (_, writer), position in current_epochs(lake.positions.read(source.name)).items()}


def store_first_position(lake: Lake, source: PostgresSource, server: ServerIdentity, writer: int, start: int) -> None:
    """Stores the first position of a writer's new epoch."""
    slot = source.slot_of(writer)
    lake.positions.store(Position(source.name, writer, slot, server.system_id, server.timeline, start, start))


def publish_tables(
    source: PostgresSource, connection: Connection, waiting: Callable[[], None] = lambda: None
) -> list[CatalogTable]:
    """Creates the missing publications; the tables that can be published. Logs which locked tables it waits for.

    waiting: called while it waits; an exception from it ends the wait.
    """
    repeats = Repeats(_log)
    while True:
        try:
            with with_lock_timeout(connection):
                usable = [t for t in catalog_tables.read_tables(connection, source.selects) if not t.problem]
                names = {writer: source.publication_of(writer) for writer in range(1, source.writers + 1)}
                publications.create_missing(connection, names, usable)
            return usable
        except psycopg.errors.LockNotAvailable:
            repeats.occurred(f"source {source.name}: {describe_locked_tables(connection)}", key="locked")
            waiting()


def _queued_tables(
    lake: Lake, source: PostgresSource, connection: Connection, tables: Iterable[CatalogTable]
) -> dict[str, int]:
    """The `rev` (1: not registered yet), by table_id, of the tables that a slot created now can export: those that are
    published, as later changes of the others would not be in the stream.
    """
    registered = lake.tables.read(source.name)
    published = publications.read(connection, {w: source.publication_of(w) for w in range(1, source.writers + 1)})
    ids = [table.table_id(source.name) for table in tables if publications.covers(published, table)]
    return {table_id: registered[table_id].rev if table_id in registered else 1 for table_id in ids}


def drop_removed_writers(
    connection: Connection,
    lake: Lake,
    source: PostgresSource,
    active: Collection[int],
    stored: Mapping[int, Position],
) -> None:
    """Drops the slots and empty publications of removed writers: a slot that no process reads retains WAL forever.

    active, stored: the active writers, and the positions of all (`stored_positions`).
    """
    for writer, position in stored.items():
        if writer in active:
            continue
        state = replication_slots.read_slot(connection, position.slot)
        other_slots = _slots_of_other_sources(lake, source, position.system_id)
        if state and not state["active"] and position.slot not in other_slots:
            replication_slots.drop_slot(connection, position.slot, source.name)
        publications.drop_if_empty(connection, source.publication_of(writer))


def _slots_of_other_sources(lake: Lake, source: PostgresSource, system_id: str) -> dict[str, str]:
    """The slots of other sources of the same cluster, with the source: the slot of `shop_2` has the name of one of
    `shop`'s second writer.
    """
    epochs = current_epochs(lake.positions.read())
    return {
        position.slot: other
        for (other, _), position in epochs.items()
        if other != source.name and position.system_id == system_id
    }


def _log_unused_slots(
    lake: Lake, source: PostgresSource, connection: Connection, positions: Mapping[int, Position]
) -> None:
    """Logs slots that have the name of a further writer: of a process that was killed before it stored a position."""
    own = {position.slot for position in positions.values()}
    unused = set()
    for name, state in replication_slots.read_slots(connection).items():
        number = name.removeprefix(f"{source.slot}_")
        is_numbered = number != name and number.isdigit() and int(number) > source.writers
        is_unused = name not in own and not state["active"]
        if is_numbered and is_unused and replication_slots.is_writer_slot(connection, state):
            unused.add(name)
    if unused:
        system_id = next(iter(positions.values())).system_id
        unused -= _slots_of_other_sources(lake, source, system_id).keys()
    for name in sorted(unused):
        _states.log_change(
            f"{source.name}, {name}",
            f"source {source.name}: slot {name} belongs to none of its writers and retains WAL; if no other "
            f"program uses it, SELECT pg_drop_replication_slot('{name}')",
            logging.WARNING,
        )


def _log_positions(source: PostgresSource, positions: Mapping[int, Position]) -> None:
    positions_text = ", ".join(
        f"writer {writer} at {format_lsn(p.position)}" for writer, p in sorted(positions.items())
    )
    lowest = min(position.position for position in positions.values())
    _states.log_change(source.name, f"source {source.name}: {positions_text}; committed up to {format_lsn(lowest)}")
