"""The feed of a Postgres stream writer: checks the start position, reads, decodes, restarts; returns `EventBatch`es."""

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
from ingest.positions.position import Position, StreamReset, current_epochs, format_lsn
from ingest.sources.postgres.pgoutput.decoder import Decoder
from ingest.sources.postgres.pgoutput.messages import TableIdentity
from ingest.sources.postgres.postgres_connection import Connection, LazyConnection, connect
from ingest.sources.postgres.replication.replication_reader import SILENCE_SECONDS, BoundedQueue, Reader
from ingest.sources.postgres.schema_tracking.relation_registry import LakeRelationRegistry
from ingest.sources.postgres.schema_tracking.table_sync import CatalogSync
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.writers.postgres_writers import check_database

_log = logging.getLogger(__name__)


class PostgresFeed:
    """The feed of one writer. Call `start`, `read` until done, then `stop`.

    position: of `open_writers`. queued: called from `read` when a snapshot was queued.
    """

    def __init__(
        self,
        lake: Lake,
        source: PostgresSource,
        settings: JobSettings,
        position: Position,
        queued: Callable[[], None] = lambda: None,
    ) -> None:
        self._lake = lake
        self._source = source
        self._settings = settings
        self._dsn = source.dsn.get_secret_value()
        self._stored = position
        self._walsender: int | None = None
        self._is_cancelled = False
        self._is_ending = False
        self._cancelled = threading.Event()
        # The commit_lsn of the last event by table, of events that a snapshot of the table may lack.
        self._changed: dict[TableIdentity, int] = {}
        # The entries of `_changed` whose snapshots, not yet started, were queued again.
        self._requeued: dict[TableIdentity, int] = {}
        # The active generations, and the changed generations that stayed inactive after all relations were described
        # again.
        self._live: frozenset[str] = frozenset()
        self._described: set[TableIdentity] = set()
        self._silence_seconds = SILENCE_SECONDS
        self._polled_at = time.monotonic()
        # Whether the server has sent anything since.
        self._has_received = False
        self._connection = LazyConnection(
            self._dsn, settings.connect_timeout_seconds, partial(check_database, lake, source, settings)
        )
        catalog_sync = CatalogSync(lake, source, self._connection)
        self._registry = LakeRelationRegistry(
            source.name, source.selects, self._connection, catalog_sync, queued, self._cancelled.wait
        )
        self._decoder = Decoder(source.name, position.writer, self._registry)
        self._queue = BoundedQueue(settings.commit_max_bytes)
        self._reader = Reader(
            source.name,
            self._connect,
            self._start_command,
            lambda: self._stored.position,
            self._queue,
            settings.status_interval_seconds,
            lambda: self._silence_seconds,
        )

    def start(self) -> None:
        """Start reading at the stored position."""
        self._registry.refresh()
        self._reader.start()

    def read(self, timeout: float) -> EventBatch | StreamReset | None:
        """The next batch; None: nothing was received within `timeout` seconds.

        StreamReset: the events of an open transaction will be received again. Raises Failure if the stream can't
        continue.
        """
        if self._is_cancelled:
            return None
        try:
            return self._take(timeout)
        except replication_slots.Cancelled:  # the batch being decoded is dropped and will be received again
            self._is_cancelled = True
            return None

    def _take(self, timeout: float) -> EventBatch | StreamReset | None:
        item = self._queue.get(timeout)
        if isinstance(item, StreamReset):
            self._decoder = Decoder(self._source.name, self._stored.writer, self._registry, item.position)
            return item
        if time.monotonic() - self._polled_at >= self._settings.catalog_poll_seconds:
            self._polled_at = time.monotonic()
            if self._has_received:
                self._has_received = False
                self._registry.check_publication(self._source.publication_of(self._stored.writer))
            self._requeue_affected_tables()
        if item is None:
            return None
        self._has_received = True
        self._registry.mark_stale()
        batch = self._decoder.feed(item)
        # Including unselected tables: a selected table may have had another name for a while.
        self._changed |= self._decoder.changed
        self._decoder.changed = {}
        return self._without_unselected(batch)

    def prepare_commit(self) -> bool:
        """Before a commit: queue new snapshots of the tables whose rows would lack the events read so far.

        After the commit would be too late: if the process is killed, no other process checks its events. False: the
        feed was cancelled while it waited for the source.
        """
        try:
            self._requeue_affected_tables()
            if new := {table: lsn for table, lsn in self._changed.items() if self._requeued.get(table) != lsn}:
                # A snapshot may have been planned before these changes, and start after the end of this process.
                self._registry.requeue_unstarted(new)
                self._requeued = dict(self._changed)
        except replication_slots.Cancelled:
            self._is_cancelled = True
            self._registry.requeue_unstarted(self._changed)
            return False
        return True

    def _requeue_affected_tables(self) -> None:
        """Compare the tracked changes with the lake's tables, and keep those whose snapshot has not started.

        Raises Cancelled.
        """
        if not self._changed:
            return
        self._registry.refresh()
        live = self._registry.active_table_ids()
        if live != self._live:
            self._live, self._described = live, set()
        replaced = self._registry.find_replaced(self._changed)
        if not replaced <= self._described:
            self._described |= replaced
            # So that the next events get the right generation.
            self._decoder.describe_again()
        self._registry.requeue_affected(self._changed)
        self._changed = self._registry.find_pending(self._changed)
        if self._is_ending:
            self._registry.requeue_unstarted(self._changed)

    def acknowledge(self, position: Position) -> None:
        """`position` is stored, so it may be acknowledged to the source."""
        self._stored = position

    def cancel(self) -> None:
        """End all waiting for the source."""
        self._cancelled.set()

    def finish(self) -> None:
        """Stop reading from the socket; `read` still returns what was received."""
        self._reader.finish()
        self._is_ending = True
        self.prepare_commit()

    def stop(self) -> None:
        """Acknowledge the stored position and end."""
        self._reader.stop()
        if self._reader.is_alive():
            self._reader.join(timeout=10)
        self._connection.close()

    def _without_unselected(self, batch: EventBatch) -> EventBatch:
        """The batch without events of tables that are published but not selected, which have taken their ordinals."""
        if not self._registry.unselected or not batch.events.num_rows:
            return batch
        others = pa.array(sorted(self._registry.unselected), pa.string())
        unselected = pc.is_in(batch.events["table_id"], value_set=others)
        return replace(batch, events=batch.events.filter(pc.invert(unselected)))

    def _connect(self) -> tuple[Connection, StreamReset]:
        """For the reader: a checked replication connection, and the newest stored position on the server's timeline."""
        seconds = self._settings.connect_timeout_seconds
        replication = connect(self._dsn, replication=True, connect_timeout_seconds=seconds)
        try:
            with connect(self._dsn, connect_timeout_seconds=seconds) as connection:
                if self._walsender is not None:
                    replication_slots.terminate_walsender(connection, self._stored.slot, self._walsender)
                state = replication_slots.wait_until_free(connection, self._stored.slot, self._stored.source)
                # Another process may have read the slot until now.
                stored = current_epochs(self._lake.positions.read(self._stored.source))
                newest = stored.get((self._stored.source, self._stored.writer))
                if newest is not None and newest.start_position == self._stored.start_position:
                    self._stored = newest
                system = slot_continuity.check_continuity(connection, replication, self._stored, state)
            self._silence_seconds = replication_slots.read_sender_timeout(replication) or SILENCE_SECONDS
        except BaseException:
            replication.close()
            raise
        self._walsender = replication.info.backend_pid
        return replication, StreamReset(self._stored.position, system.timeline)

    def _start_command(self, position: int) -> str:
        name = self._source.publication_of(self._stored.writer)
        # The option is a literal that contains a list of identifiers.
        names = f'"{name.replace(chr(34), chr(34) * 2)}"'.replace("'", "''")
        return (
            f'START_REPLICATION SLOT "{self._stored.slot}" LOGICAL {format_lsn(position)} '
            f"(proto_version '1', publication_names '{names}', messages 'true')"
        )
