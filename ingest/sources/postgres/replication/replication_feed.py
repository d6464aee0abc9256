"""A Postgres writer's stream as `EventBatch`es: checks where it may start, reads, decodes,
restarts.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ingest.common.records import EventBatch
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.position import Position, Restart, current, format_lsn
from ingest.sources.postgres.pgoutput.decoder import Decoder
from ingest.sources.postgres.pgoutput.messages import TableInfo
from ingest.sources.postgres.postgres_connection import Connection, LazyConnection, connect
from ingest.sources.postgres.replication.replication_reader import SILENCE_SECONDS, Pipe, Reader
from ingest.sources.postgres.schema_tracking.relation_registry import CatalogRegistry
from ingest.sources.postgres.schema_tracking.table_sync import Survey
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.writers.postgres_writers import check_database

_log = logging.getLogger(__name__)


class PostgresFeed:
    """The batches of one writer. Made with what `writers.open_writers` gave; `start` it, `read` until done,
    `stop`.

    queued: called from `read` when the stream showed a table whose snapshot has to be taken. cancelled: set by
    `cancel`, for others who wait for the source.
    """

    def __init__(
        self,
        lake: Lake,
        source: PostgresSource,
        settings: JobSettings,
        position: Position,
        queued: Callable[[], None] = lambda: None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._lake = lake
        self._source = source
        self._settings = settings
        self._dsn = source.dsn.get_secret_value()
        self._stored = position
        self._walsender: int | None = None
        self._has_given_up = False
        self._is_ending = False
        self._cancelled = cancelled or threading.Event()
        # The last changes, by table as it was described, that what the lake takes the tables for may lack.
        self._changed: dict[TableInfo, int] = {}
        # The generations that there are, and the changed ones that are none of them, though all relations were
        # described again.
        self._live: frozenset[str] = frozenset()
        self._described: set[TableInfo] = set()
        self._silence_seconds = SILENCE_SECONDS
        self._looked = time.monotonic()
        # Whether the server sent anything since then.
        self._has_heard = False
        self._link = LazyConnection(
            self._dsn, settings.connect_timeout_seconds, partial(check_database, lake, source, settings)
        )
        survey = Survey(lake, source, self._link)
        self._registry = CatalogRegistry(source.name, source.selects, self._link, survey, queued, self._cancelled.wait)
        self._decoder = Decoder(source.name, position.writer, self._registry)
        self._pipe = Pipe(settings.commit_max_bytes)
        self._reader = Reader(
            source.name,
            self._connect,
            self._start_command,
            lambda: self._stored.position,
            self._pipe,
            settings.status_interval_seconds,
            lambda: self._silence_seconds,
        )

    def start(self) -> None:
        """Begin to read from the stored position."""
        self._registry.refresh()
        self._reader.start()

    def read(self, timeout: float) -> EventBatch | Restart | None:
        """What came next; None: nothing within `timeout` seconds.

        A Restart: what was read of an open transaction comes again. Raises Failure when there is no
        going on.
        """
        if self._has_given_up:
            return None
        try:
            return self._take(timeout)
        except replication_slots.Cancelled:  # what it stands in the middle of is not landed, and comes again
            self._has_given_up = True
            return None

    def _take(self, timeout: float) -> EventBatch | Restart | None:
        item = self._pipe.get(timeout)
        if isinstance(item, Restart):
            self._decoder = Decoder(self._source.name, self._stored.writer, self._registry, item.position)
            return item
        if time.monotonic() - self._looked >= self._settings.catalog_poll_seconds:
            self._looked = time.monotonic()
            if self._has_heard:
                self._has_heard = False
                self._registry.check_published(self._source.publication_of(self._stored.writer))
            self._judge()
        if item is None:
            return None
        self._has_heard = True
        self._registry.received()
        batch = self._decoder.feed(item)
        # Of unselected tables too: one that is selected may have had another name for a while.
        self._changed |= self._decoder.changed
        self._decoder.changed = {}
        return self._selected(batch)

    def before_landing(self) -> bool:
        """By what the lake says now, tables are to be read anew that what was read is missing from.

        Later would be too late: nobody looks again at what was landed by a process that was killed. False, if it is
        told to end while it waits for the source.
        """
        try:
            self._judge()
        except replication_slots.Cancelled:
            self._has_given_up = True
            self._registry.left(self._changed)
            return False
        return True

    def _judge(self) -> None:
        """Changes that a snapshot may have, or lack, as it has not begun yet, are looked at again. Raises Cancelled."""
        if not self._changed:
            return
        self._registry.refresh()
        live = self._registry.live()
        if live != self._live:
            self._live, self._described = live, set()
        replaced = self._registry.replaced(self._changed)
        if not replaced <= self._described:
            self._described |= replaced
            # What comes next is to be of the right generation.
            self._decoder.describe_again()
        self._registry.strayed(self._changed)
        self._changed = self._registry.undecided(self._changed)
        if self._is_ending:
            self._registry.left(self._changed)

    def acknowledge(self, position: Position) -> None:
        """`position` is stored: the source may forget what is before it."""
        self._stored = position

    def cancel(self) -> None:
        """What waits for the source gives up."""
        self._cancelled.set()

    def finish(self) -> None:
        """Read no more from the socket; what was read may still be taken."""
        self._reader.finish()
        self._is_ending = True
        self.before_landing()

    def stop(self) -> None:
        """Tell the source what is stored, and end."""
        self._reader.stop()
        if self._reader.is_alive():
            self._reader.join(timeout=10)
        self._link.close()

    def _selected(self, batch: EventBatch) -> EventBatch:
        """Without the rows of tables that are published but not selected.

        They have had their ordinals.
        """
        if not self._registry.unselected or not batch.events.num_rows:
            return batch
        others = pa.array(sorted(self._registry.unselected), pa.string())
        unselected = pc.is_in(batch.events["table_id"], value_set=others)
        return replace(batch, events=batch.events.filter(pc.invert(unselected)))

    def _connect(self) -> tuple[Connection, Restart]:
        """For the reader: a checked connection, and the position stored by now on the server's timeline."""
        seconds = self._settings.connect_timeout_seconds
        replication = connect(self._dsn, replication=True, connect_timeout_seconds=seconds)
        try:
            with connect(self._dsn, connect_timeout_seconds=seconds) as connection:
                if self._walsender is not None:
                    replication_slots.terminate_walsender(connection, self._stored.slot, self._walsender)
                found = replication_slots.wait_until_free(connection, self._stored.slot, self._stored.source)
                # Another process may have streamed from it until now.
                stored = current(self._lake.positions(self._stored.source))
                newest = stored.get((self._stored.source, self._stored.writer))
                if newest is not None and newest.start_position == self._stored.start_position:
                    self._stored = newest
                system = slot_continuity.check_continuity(connection, replication, self._stored, found)
            self._silence_seconds = replication_slots.read_sender_timeout(replication) or SILENCE_SECONDS
        except BaseException:
            replication.close()
            raise
        self._walsender = replication.info.backend_pid
        return replication, Restart(self._stored.position, system.timeline)

    def _start_command(self, position: int) -> str:
        name = self._source.publication_of(self._stored.writer)
        # A list of identifiers inside of a literal.
        names = f'"{name.replace(chr(34), chr(34) * 2)}"'.replace("'", "''")
        return (
            f'START_REPLICATION SLOT "{self._stored.slot}" LOGICAL {format_lsn(position)} '
            f"(proto_version '1', publication_names '{names}', messages 'true')"
        )
