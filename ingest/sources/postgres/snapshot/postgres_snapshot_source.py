"""Postgres tables for the snapshotter: what there is to read, under which snapshot, and the reading
itself.

The snapshot is one that the making of a slot exported: the writer's own for the first tables, a
temporary slot's for later ones. It is held by a transaction of this process for as long as tables
are read in it.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import psycopg

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Chunk, Folder, Lake, SourceTable
from ingest.snapshot.chunk_planning import chunk_count, earliest
from ingest.snapshot.chunk_task import NO_SNAPSHOT, UNREACHABLE
from ingest.snapshot.executor_reads import ChunkReader, outcome
from ingest.snapshot.snapshot_source import Bounds, Busy, Plan, Read, Unreachable
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import (
    TRANSIENT_ERRORS,
    CannotConnect,
    Connection,
    LazyConnection,
    describe_endpoint,
)
from ingest.sources.postgres.schema_tracking.table_sync import Survey
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.slots.replication_slots import ExportedSnapshot
from ingest.sources.postgres.snapshot import table_chunk_reader
from ingest.sources.postgres.writers.postgres_writers import check_database

_log = logging.getLogger(__name__)


class PostgresTables:
    """One source's tables.

    held: a snapshot to begin with, closed here; None: make one when it is needed.
    """

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
        self._link = LazyConnection(
            self._dsn, settings.connect_timeout_seconds, partial(check_database, lake, source, settings)
        )
        self._cancelled = threading.Event()
        self._survey = Survey(lake, source, self._link, self._cancelled.wait)
        self._reader = ChunkReader(
            lake.spark, "ingest.sources.postgres.snapshot.table_chunk_reader", self._dsn, settings
        )

    def survey(self) -> None:
        """See `Source`."""
        with self._reachable():
            self._survey.all()

    def plan(self, queued: Sequence[SourceTable], *, patient: bool = True) -> list[Plan]:
        """See `Source`.

        Under the snapshot a table has to look as it does now: else a newer is made.
        """
        wanted = {table.table_id: table.rev for table in queued}
        try:
            with self._reachable():
                return self._plan(wanted, self._give_up_if_cancelled if patient else _give_up)
        except replication_slots.Cancelled:
            return []

    def _plan(self, wanted: Mapping[str, int], waiting: Callable[[], None]) -> list[Plan]:
        held = self._hold(wanted, waiting)
        for _ in range(3):
            found = self._alike(held, wanted)
            if len(found) == len(wanted.keys() & self._survey.seen.keys()):
                break
            # Altered since the snapshot was made: it sees no rows, or old columns.
            held = self._renew(wanted, waiting)
            self._survey.all()
        found = [i for i in self._alike(held, wanted) if self._survey.seen[i].published]
        tables = self._survey.tables
        return [Plan(self._survey.seen[i].row, held.lsn, self._chunks(tables[i])) for i in found]

    def obstacle(self, table: SourceTable) -> str:
        """See `Source`. What keeps a table from being read is one for all its generations."""
        return self._survey.obstacles.get(table.relation_id, "")

    def weight(self, table: SourceTable, chunk: Chunk) -> int:
        """See `Source`: its part of the leaf's size, as of the last survey."""
        if chunk.row_keys is not None:
            return 0
        found = self._survey.tables.get(table.table_id)
        for leaf, pages, size in found.sizes if found else ():
            if leaf.partition_id == chunk.partition_id:
                upper = pages if chunk.upper_bound is None else int(chunk.upper_bound)
                return size * max(upper - int(chunk.lower_bound or 0), 0) // max(pages, 1)
        return 0

    def at_once(self, table: SourceTable) -> bool:
        """See `Source`.

        Rows without a key are counted, so a row must not be seen from two moments.
        """
        return table.key_columns is None

    def read(self, chunks: Sequence[tuple[SourceTable, Chunk]], folder: Folder) -> Iterator[Read]:
        """See `Source`."""
        try:
            with self._reachable():
                held = self._hold({})
                # What is held may be of a table that another process began later.
                if held.lsn < max((earliest(table, chunk) for table, chunk in chunks), default=0):
                    held = self._renew({}, self._give_up_if_cancelled)
        except replication_slots.Cancelled:
            return
        claimed = {(chunk.snapshot_id, chunk.chunk): chunk for _, chunk in chunks}
        for table, chunk in chunks:
            if problem := self._lost(table, chunk, held):
                del claimed[chunk.snapshot_id, chunk.chunk]
                yield Read(chunk, problem=problem, restart=True)
        tasks = [
            (self.weight(table, chunk), self._task(table, chunk, held, folder).pack())
            for table, chunk in chunks
            if (chunk.snapshot_id, chunk.chunk) in claimed
        ]
        for result in self._reader.read(tasks):
            if result.problem in (NO_SNAPSHOT, UNREACHABLE):
                self.rest()
            yield outcome(result, claimed[result.snapshot_id, result.chunk])

    def _lost(self, table: SourceTable, chunk: Chunk, held: ExportedSnapshot) -> str:
        """Why a chunk can't be read under a snapshot of the server; empty if it can."""
        if held.lsn < earliest(table, chunk):
            return "the cluster failed over, and has not come to the snapshot that was begun"
        if self.at_once(table) and table.snapshot_lsn != held.lsn:
            return "its snapshot was lost, and it has no key"
        if chunk.partition_id not in self._survey.published:
            return "it is not published any more, so nothing says which of its rows may be read"
        return ""

    def watermark(self) -> int:
        """See `Source`."""
        with self._reachable():
            return catalog_tables.watermark(self._link.get())

    def rest(self) -> None:
        """See `Source`: an open snapshot keeps the source from clearing up."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def cancel(self) -> None:
        """See `Source`."""
        self._cancelled.set()

    def close(self) -> None:
        """See `Source`."""
        self.rest()
        self._link.close()

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """What says that the connection is lost becomes `Unreachable`; the next call connects again."""
        try:
            yield
        except CannotConnect as error:
            raise Unreachable(error.what, error.where, error.fix) from None
        except TRANSIENT_ERRORS as error:
            raise Busy(
                f"the catalogue can't be read at the moment ({self._link.describe_error(error)})",
                describe_endpoint(self._dsn),
            ) from None
        except psycopg.OperationalError as error:
            self._link.close()
            self.rest()
            raise Unreachable(
                f"the connection was cut ({' '.join(str(error).split())})", describe_endpoint(self._dsn)
            ) from None

    def _task(
        self, table: SourceTable, chunk: Chunk, held: ExportedSnapshot, folder: Folder
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
            row_filter=self._survey.published[chunk.partition_id].row_filter,
            lower=int(chunk.lower_bound or 0),
            upper=None if chunk.upper_bound is None else int(chunk.upper_bound),
            row_keys=chunk.row_keys,
            snapshot=held.name,
            read_lsn=held.lsn,
            storage={leaf.partition_id: leaf.storage for leaf in table.leaves},
            folder=folder.root,
            largest_row=folder.largest_row,
        )

    def _chunks(self, table: CatalogTable) -> tuple[Bounds, ...]:
        """By leaf; the last of a leaf is open, as it may have grown."""
        planned: list[Bounds] = []
        for leaf, pages, size in table.sizes:
            count = chunk_count(size, self._settings)
            lower = [str(page) for page in sorted({number * pages // count for number in range(count)})]
            planned += zip([leaf.partition_id] * len(lower), lower, [*lower[1:], None], strict=True)
        return tuple(planned)

    def _alike(self, held: ExportedSnapshot, wanted: Mapping[str, int]) -> list[str]:
        """Of the wanted tables those that the snapshot sees with the storage and columns of now."""
        tables = self._survey.tables
        return [i for i in wanted if i in tables and _same_in(held.connection, tables[i])]

    def _hold(self, wanted: Mapping[str, int], waiting: Callable[[], None] | None = None) -> ExportedSnapshot:
        """The snapshot at hand, or one made now if it is older than the queueing of these tables."""
        held = self._held
        if held is None or held.connection.broken or not held.includes(wanted):
            return self._renew(wanted, waiting or self._give_up_if_cancelled)
        return held

    def _renew(self, wanted: Mapping[str, int], waiting: Callable[[], None]) -> ExportedSnapshot:
        """A snapshot in place of the one at hand, which stays until it is there. waiting: see `slots.create`."""
        made = replication_slots.create_slot(self._dsn, None, wanted, waiting, self._settings.connect_timeout_seconds)
        self.rest()
        self._held = made
        return made

    def _give_up_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise replication_slots.Cancelled


def _give_up() -> None:
    raise replication_slots.Cancelled


def _same_in(connection: Connection, table: CatalogTable) -> bool:
    """Whether a snapshot sees the leaves, storage and columns that a table had at the last look.

    What has changed since that look, each chunk sees after its read.
    """
    oids = [leaf.partition_id for leaf in table.leaves]
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
    return dict(storage) == {leaf.partition_id: leaf.storage for leaf in table.leaves} and columns == [
        (column.name, column.attnum) for column in table.columns
    ]
