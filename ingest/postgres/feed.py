"""A Postgres writer's stream as `EventBatch`es: checks where it may start, reads, decodes, restarts.

`open_writer` makes what is missing (publication, slot, first position), so that `PostgresFeed` finds it.
"""

import logging
import threading
from collections.abc import Callable, Iterable

import psycopg

from ingest.change import EventBatch
from ingest.config import PostgresSource
from ingest.lake import Lake, SourceTable
from ingest.positions import Position, current, format_lsn, parse_lsn
from ingest.postgres import catalog, publications, slots
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import Connection, connect
from ingest.postgres.pgoutput import Decoder
from ingest.postgres.reader import Pipe, Reader, Restart
from ingest.postgres.registry import CatalogRegistry
from ingest.settings import JobSettings

_log = logging.getLogger(__name__)


def open_writer(
    lake: Lake, source: PostgresSource, settings: JobSettings, writer: int = 1
) -> tuple[Position, slots.Held | None]:
    """Where the writer goes on, and the snapshot exported by its slot if that was made just now.

    Makes publication and slot if they are missing, and stores the slot's consistent point before anything
    is streamed. A slot that was made but whose position was never stored is taken over as it is: nothing was
    acknowledged, so nothing is missing. Raises Failure.
    """
    dsn, slot = source.dsn.get_secret_value(), source.slot_of(writer)
    seconds = settings.connect_seconds
    with connect(dsn, connect_seconds=seconds) as connection:
        usable = [t for t in catalog.tables(connection, source.selects) if not t.problem]
        known = {table.relation_id for table in lake.tables.read(source.name).values()}
        publications.ensure(connection, source.publication_of(writer), usable, known)
        with connect(dsn, replication=True, connect_seconds=seconds) as replication:
            stored = current(lake.positions(source.name)).get((source.name, writer))
            if stored is not None:
                slots.check(connection, replication, stored)
                return stored, None
            system = slots.identify(replication)
        held = None
        found = slots.state(connection, slot)
        if found is None:
            held = slots.create(dsn, slot, seconds=seconds)
            start = held.lsn
        else:
            slots.usable(connection, found, slot, source.name)
            start = parse_lsn(found["confirmed_flush_lsn"])
    position = Position(
        source.name, writer, slot, system.system_id, system.timeline, start, start
    )
    lake.store(position)
    _log.info("%s: slot %s starts at %s", source.name, slot, format_lsn(start))
    return position, held


class PostgresFeed:
    """The batches of one writer. Made with what `open_writer` gave; `start` it, `read` until done, `stop`.

    generation: called from `read` with each table generation that the stream shows, before its rows come.
    """

    def __init__(
        self,
        source: PostgresSource,
        settings: JobSettings,
        position: Position,
        registered: Callable[[], Iterable[SourceTable]],
        generation: Callable[[SourceTable, CatalogTable | None], None],
    ) -> None:
        self._source = source
        self._settings = settings
        self._dsn = source.dsn.get_secret_value()
        self._stored = position
        self._catalog: Connection | None = None
        self._registry = CatalogRegistry(
            source.name, self._catalog_connection, registered, generation
        )
        self._decoder: Decoder | None = None
        self._pipe = Pipe(settings.landing_bytes)
        self._reader = Reader(
            self._connect,
            self._start_command,
            lambda: self._stored.position,
            self._pipe,
            settings.status_seconds,
        )
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to read from the stored position."""
        self._reader.start()

    def read(self, timeout: float) -> EventBatch | Restart | None:
        """What came next; None: nothing within `timeout` seconds. A Restart: what was read of an open
        transaction comes again. Raises Failure when the stream can't go on."""
        item = self._pipe.get(timeout)
        if isinstance(item, Restart):
            self._decoder = Decoder(
                self._source.name, self._stored.writer, self._registry, item.position
            )
            return item
        if item is None:
            return None
        assert self._decoder is not None
        return self._decoder.feed(item)

    def acknowledge(self, position: Position) -> None:
        """`position` is stored: the source may forget what is before it."""
        self._stored = position

    def finish(self) -> None:
        """Read no more from the socket; what was read may still be taken."""
        self._reader.finish()

    def stop(self) -> None:
        """Tell the source what is stored, and end."""
        self._reader.stop()
        if self._reader.is_alive():
            self._reader.join(timeout=10)
        if self._catalog is not None:
            self._catalog.close()

    def watermark(self) -> int:
        """A position in the source's log past all that has been committed by now (a transactional message)."""
        return emit_watermark(self._catalog_connection())

    def _catalog_connection(self) -> Connection:
        if self._catalog is None or self._catalog.broken or self._catalog.closed:
            seconds = self._settings.connect_seconds
            self._catalog = connect(self._dsn, connect_seconds=seconds)
        return self._catalog

    def _connect(self) -> tuple[Connection, int]:
        """For the reader: a checked connection, and the position stored by now."""
        seconds = self._settings.connect_seconds
        replication = connect(self._dsn, replication=True, connect_seconds=seconds)
        try:
            with connect(self._dsn, connect_seconds=seconds) as connection:
                stored = self._stored
                slots.check(connection, replication, stored)
        except BaseException:
            replication.close()
            raise
        return replication, stored.position

    def _start_command(self, position: int) -> str:
        publication = self._source.publication_of(self._stored.writer)
        quoted = '"' + publication.replace('"', '""') + '"'
        return (
            f"START_REPLICATION SLOT {self._stored.slot} LOGICAL {format_lsn(position)} "
            f"(proto_version '1', publication_names '{quoted.replace(chr(39), chr(39) * 2)}', "
            "messages 'true')"
        )


def emit_watermark(connection: Connection) -> int:
    """The LSN of a transactional message written now: all that has been committed is before it."""
    try:
        row = connection.execute(
            "SELECT pg_logical_emit_message(true, 'tidemark', '')::text"
        ).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        raise
    assert row is not None
    return parse_lsn(row[0])
