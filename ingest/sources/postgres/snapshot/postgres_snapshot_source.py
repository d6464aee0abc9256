"""Postgres tables for the snapshotter: plans snapshots, holds the exported snapshot, reads chunks.

The exported snapshot comes from the creation of a slot: the writer's own slot for the first tables, a temporary slot
for later ones. A transaction of this process holds it while tables are read under it.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

import psycopg

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Chunk, Folder, Lake, SourceTable
from ingest.snapshot.chunk_planning import chunk_count, min_read_lsn
from ingest.snapshot.chunk_task import NO_SNAPSHOT, UNREACHABLE
from ingest.snapshot.executor_reads import ChunkReader, chunk_outcome
from ingest.snapshot.snapshot_source import Bounds, CatalogUnavailable, ChunkOutcome, SnapshotPlan, SourceUnavailable
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import (
    TRANSIENT_ERRORS,
    CannotConnect,
    Connection,
    LazyConnection,
    describe_endpoint,
)
from ingest.sources.postgres.schema_tracking.table_sync import CatalogSync
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.slots.replication_slots import ExportedSnapshot
from ingest.sources.postgres.snapshot import table_chunk_reader
from ingest.sources.postgres.writers.postgres_writers import check_database

_log = logging.getLogger(__name__)


class PostgresTables:
    """The tables of one source. held: an exported snapshot to start with, closed here; None: create one when needed."""

    has_partial_updates: ClassVar[bool] = True  # unchanged TOAST values

    def __init__(
        self,
        lake: Lake,
        source: PostgresSource,
        settings: JobSettings,
        held: ExportedSnapshot | None = None,
    ) -> None:
        self._settings = settings
        self._held = held
        self._dsn = source.dsn.get_secret_value()
        self._connection = LazyConnection(
            self._dsn, settings.connect_timeout_seconds, partial(check_database, lake, source, settings)
        )
        self._cancelled = threading.Event()
        self._catalog_sync = CatalogSync(lake, source, self._connection, self._cancelled.wait)
        self._reader = ChunkReader(
            lake.spark, "ingest.sources.postgres.snapshot.table_chunk_reader", self._dsn, settings
        )

    def sync_catalog(self) -> None:
        """See `SnapshotSource`."""
        with self._mapped_errors():
            self._catalog_sync.sync_all()

    def plan(self, queued: Sequence[SourceTable], *, patient: bool = True) -> list[SnapshotPlan]:
        """See `SnapshotSource`.

        A table must look under the exported snapshot as it does now; otherwise a newer one is created.
        """
        wanted = {table.table_id: table.rev for table in queued}
        try:
            with self._mapped_errors():
                return self._plan(wanted, self._check_cancelled if patient else _cancel_at_once)
        except replication_slots.Cancelled:
            return []

    def _plan(self, wanted: Mapping[str, int], waiting: Callable[[], None]) -> list[SnapshotPlan]:
        snapshot = self._get_snapshot(wanted, waiting)
        for _ in range(3):
            unchanged = self._find_unchanged(snapshot, wanted)
            if len(unchanged) == len(wanted.keys() & self._catalog_sync.states.keys()):
                break
            # A table was altered since the exported snapshot, which sees no rows of it, or old columns.
            snapshot = self._create_snapshot(wanted, waiting)
            self._catalog_sync.sync_all()
        unchanged = [i for i in self._find_unchanged(snapshot, wanted) if self._catalog_sync.states[i].published]
        tables = self._catalog_sync.tables
        return [
            SnapshotPlan(self._catalog_sync.states[i].row, snapshot.lsn, self._plan_chunks(tables[i]))
            for i in unchanged
        ]

    def ineligibility_reason(self, table: SourceTable) -> str:
        """See `SnapshotSource`. The reason applies to all generations of the table."""
        return self._catalog_sync.ineligible.get(table.relation_id, "")

    def estimated_bytes(self, table: SourceTable, chunk: Chunk) -> int:
        """See `SnapshotSource`: the chunk's share of the partition's size, as of the last catalog sync."""
        if chunk.row_keys is not None:
            return 0
        catalog_table = self._catalog_sync.tables.get(table.table_id)
        for partition, pages, size in catalog_table.partition_sizes if catalog_table else ():
            if partition.partition_id == chunk.partition_id:
                upper = pages if chunk.upper_bound is None else int(chunk.upper_bound)
                return size * max(upper - int(chunk.lower_bound or 0), 0) // max(pages, 1)
        return 0

    def requires_single_snapshot(self, table: SourceTable) -> bool:
        """See `SnapshotSource`.

        Rows without a key are counted, so all chunks must be read under one exported snapshot.
        """
        return table.key_columns is None

    def read(self, chunks: Sequence[tuple[SourceTable, Chunk]], folder: Folder) -> Iterator[ChunkOutcome]:
        """See `SnapshotSource`."""
        try:
            with self._mapped_errors():
                snapshot = self._get_snapshot({})
                # Another process may have started a table's snapshot under a later exported snapshot.
                if snapshot.lsn < max((min_read_lsn(table, chunk) for table, chunk in chunks), default=0):
                    snapshot = self._create_snapshot({}, self._check_cancelled)
        except replication_slots.Cancelled:
            return
        claimed = {(chunk.snapshot_id, chunk.chunk): chunk for _, chunk in chunks}
        for table, chunk in chunks:
            if problem := self._unreadable_reason(table, chunk, snapshot):
                del claimed[chunk.snapshot_id, chunk.chunk]
                yield ChunkOutcome(chunk, problem=problem, must_restart=True)
        tasks = [
            (self.estimated_bytes(table, chunk), self._task(table, chunk, snapshot, folder).pack())
            for table, chunk in chunks
            if (chunk.snapshot_id, chunk.chunk) in claimed
        ]
        for result in self._reader.read(tasks):
            if result.problem in (NO_SNAPSHOT, UNREACHABLE):
                self.release_resources()
            yield chunk_outcome(result, claimed[result.snapshot_id, result.chunk])

    def _unreadable_reason(self, table: SourceTable, chunk: Chunk, snapshot: ExportedSnapshot) -> str:
        """Why a chunk can't be read under an exported snapshot; empty: it can."""
        if snapshot.lsn < min_read_lsn(table, chunk):
            return "the cluster failed over, and is behind the LSN of the running snapshot"
        if self.requires_single_snapshot(table) and table.snapshot_lsn != snapshot.lsn:
            return "its exported snapshot was lost, and it has no key"
        if chunk.partition_id not in self._catalog_sync.published:
            return "it is no longer published, so its row filter is unknown"
        return ""

    def emit_marker(self) -> int:
        """See `SnapshotSource`."""
        with self._mapped_errors():
            return catalog_tables.emit_marker(self._connection.get())

    def release_resources(self) -> None:
        """See `SnapshotSource`: an open exported snapshot keeps VACUUM from removing dead rows."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def cancel(self) -> None:
        """See `SnapshotSource`."""
        self._cancelled.set()

    def close(self) -> None:
        """See `SnapshotSource`."""
        self.release_resources()
        self._connection.close()

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Within it, connection errors become `SourceUnavailable`, and lock errors `CatalogUnavailable`.

        After either, the next call connects again.
        """
        try:
            yield
        except CannotConnect as error:
            raise SourceUnavailable(error.what, error.where, error.fix) from None
        except TRANSIENT_ERRORS as error:
            raise CatalogUnavailable(
                f"the catalog can't be read at the moment ({self._connection.describe_error(error)})",
                describe_endpoint(self._dsn),
            ) from None
        except psycopg.OperationalError as error:
            self._connection.close()
            self.release_resources()
            raise SourceUnavailable(
                f"the connection was lost ({' '.join(str(error).split())})", describe_endpoint(self._dsn)
            ) from None

    def _task(
        self, table: SourceTable, chunk: Chunk, snapshot: ExportedSnapshot, folder: Folder
    ) -> table_chunk_reader.ChunkTask:
        return table_chunk_reader.ChunkTask(
            source=table.source,
            table_name=table.table_name,
            table_id=table.table_id,
            snapshot_id=chunk.snapshot_id,
            snapshot_lsn=table.snapshot_lsn or 0,
            chunk=chunk.chunk,
            attempt=chunk.attempt,
            relation_id=table.relation_id,
            partition_id=chunk.partition_id,
            columns={column.name: column.attnum for column in table.columns},
            key=table.key_columns,
            row_filter=self._catalog_sync.published[chunk.partition_id].row_filter,
            lower=int(chunk.lower_bound or 0),
            upper=None if chunk.upper_bound is None else int(chunk.upper_bound),
            row_keys=chunk.row_keys,
            snapshot=snapshot.name,
            read_lsn=snapshot.lsn,
            storage={partition.partition_id: partition.storage for partition in table.partitions},
            folder=folder.root,
            largest_row=folder.largest_row,
        )

    def _plan_chunks(self, table: CatalogTable) -> tuple[Bounds, ...]:
        """The chunks of each partition; its last one has no upper bound, since the partition may grow."""
        planned: list[Bounds] = []
        for partition, pages, size in table.partition_sizes:
            count = chunk_count(size, self._settings)
            lower = [str(page) for page in sorted({number * pages // count for number in range(count)})]
            planned += zip([partition.partition_id] * len(lower), lower, [*lower[1:], None], strict=True)
        return tuple(planned)

    def _find_unchanged(self, snapshot: ExportedSnapshot, wanted: Mapping[str, int]) -> list[str]:
        """The wanted tables whose storage and columns are the same under the exported snapshot."""
        tables = self._catalog_sync.tables
        return [i for i in wanted if i in tables and _is_unchanged_in(snapshot.connection, tables[i])]

    def _get_snapshot(self, wanted: Mapping[str, int], waiting: Callable[[], None] | None = None) -> ExportedSnapshot:
        """The held exported snapshot, or a new one if that was created before these tables were queued."""
        snapshot = self._held
        if snapshot is None or snapshot.connection.broken or not snapshot.includes(wanted):
            return self._create_snapshot(wanted, waiting or self._check_cancelled)
        return snapshot

    def _create_snapshot(self, wanted: Mapping[str, int], waiting: Callable[[], None]) -> ExportedSnapshot:
        """Replace the held exported snapshot once the new one exists. waiting: see `create_slot`."""
        created = replication_slots.create_slot(
            self._dsn, None, wanted, waiting, self._settings.connect_timeout_seconds
        )
        self.release_resources()
        self._held = created
        return created

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise replication_slots.Cancelled


def _cancel_at_once() -> None:
    raise replication_slots.Cancelled


def _is_unchanged_in(connection: Connection, table: CatalogTable) -> bool:
    """Whether a table has the same partitions, storage and columns under an exported snapshot as in the last sync.

    Each chunk detects later changes after its read.
    """
    oids = [partition.partition_id for partition in table.partitions]
    try:
        storage = connection.execute(
            "SELECT oid::bigint, relfilenode::bigint FROM pg_class WHERE oid = ANY (%s::oid[])",
            [oids],
        ).fetchall()
        columns = connection.execute(
            "SELECT attname, attnum::int FROM pg_attribute WHERE attrelid = %s::oid "
            "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            [table.oid],
        ).fetchall()
    except psycopg.OperationalError:
        return False
    return dict(storage) == {
        partition.partition_id: partition.storage for partition in table.partitions
    } and columns == [(column.name, column.attnum) for column in table.columns]
