"""Postgres tables for the snapshotter: what there is to read, under which snapshot, and the reading itself.

The snapshot is one that the making of a slot exported: the writer's own for the first tables, a temporary
slot's for later ones. It is held by a transaction of this process for as long as tables are read in it.
"""

import logging
from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException

from ingest.config import PostgresSource
from ingest.errors import Failure
from ingest.lake import Chunk, File, Folder, Lake, SourceTable
from ingest.postgres import catalog, publications, rows, slots
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import Connection, connect
from ingest.postgres.feed import emit_watermark
from ingest.postgres.publications import Published
from ingest.postgres.slots import Held
from ingest.settings import JobSettings
from ingest.snapshot import Begun, Read

_log = logging.getLogger(__name__)


class PostgresTables:
    """One source's tables. held: a snapshot to begin with, closed here; None: make one when it is needed."""

    def __init__(
        self,
        lake: Lake,
        source: PostgresSource,
        settings: JobSettings,
        held: Held | None = None,
        writer: int = 1,
    ) -> None:
        self._lake = lake
        self._source = source
        self._settings = settings
        self._held = held
        self._writer = writer
        self._dsn = source.dsn.get_secret_value()
        self._connection: Connection | None = None
        self._published: Mapping[int, Published] = {}
        self._tables: dict[str, CatalogTable] = {}
        self._reported: set[str] = set()
        lake.spark.dataSource.register(rows.chunk_source(self._dsn, settings.connect_seconds))

    def survey(self) -> None:
        """Registers the tables that are new, and reports those that can't be replicated."""
        found = catalog.tables(self._catalog(), self._source.selects)
        known = self._lake.tables.read(self._source.name)
        usable = [table for table in found if not table.problem]
        for table in found:
            if table.problem:
                self._report(table.table_name, table.problem)
        seen = {table.relation_id for table in known.values()}
        publication = self._source.publication_of(self._writer)
        self._published = publications.ensure(self._catalog(), publication, usable, seen)
        self._tables = {table.table_id(self._source.name): table for table in usable}
        for table_id, table in self._tables.items():
            if not publications.sends(self._published, table):
                self._report(
                    table.table_name,
                    f"it is not in publication {publication}; "
                    f'ALTER PUBLICATION {publication} ADD TABLE "{table.schema}"."{table.name}"',
                )
            elif table_id not in known:
                self._lake.tables.register(table.row(self._source.name, self._writer))

    def begin(self, table: SourceTable) -> Begun | None:
        """See `Source`: under the snapshot at hand, if the table looks the same in it as it does now."""
        now = self._tables.get(table.table_id)
        if now is None:
            return None
        for attempt in range(3):
            held = self._hold(fresh=attempt > 0)
            if _same_in(held.connection, now):
                columns = self._columns(now)
                row = now.row(self._source.name, self._writer)
                return Begun(_with_columns(row, columns), held.lsn, self._chunks(now))
            self.survey()
            now = self._tables.get(table.table_id)
            if now is None:
                return None
        return None

    def read(self, table: SourceTable, chunks: Sequence[Chunk], folder: Folder) -> Read:
        """See `Source`."""
        held = self._hold()
        tasks = [self._task(table, chunk, held, folder) for chunk in chunks]
        reader = self._lake.spark.read.format(rows.FORMAT).option("tasks", rows.pack(tasks))
        try:
            found = [rows.ChunkResult(**row.asDict()) for row in reader.load().collect()]
        except PySparkException as error:
            raise Failure(
                f"the executors can't read ({str(error).partition(chr(10))[0]})",
                table.table_name,
                "logs/spark.log says more; the package has to be installed on the executors",
            ) from error
        return self._outcome(table, found)

    def watermark(self) -> int:
        """See `Source`."""
        return emit_watermark(self._catalog())

    def unchanged(self, table: SourceTable) -> bool:
        """See `Source`."""
        now = catalog.table_of(self._catalog(), table.relation_id)
        return (
            now is not None
            and now.table_id(self._source.name) == table.table_id
            and now.leaves == table.leaves
        )

    def close(self) -> None:
        """Lets go of the snapshot and the connections."""
        for held in (self._held, self._connection):
            if held is not None:
                held.close()
        self._held = self._connection = None

    def _outcome(self, table: SourceTable, found: Sequence[rows.ChunkResult]) -> Read:
        good = [result for result in found if result.problem is None]
        files = {r.chunk: File(r.path, r.rows, r.size) for r in good if r.path is not None}
        counts = {r.chunk: r.rows for r in good}
        restart = give_up = ""
        for result in found:
            detail = result.detail or ""
            if result.problem == rows.CHANGED:
                restart = detail
            elif result.problem == rows.NO_SNAPSHOT:
                self._let_go()
            elif result.problem == rows.UNREACHABLE:
                _log.warning("%s: %s", table.table_name, detail)
                self._let_go()
            elif result.problem:
                give_up = detail
        return Read(files, counts, restart, give_up)

    def _task(
        self, table: SourceTable, chunk: Chunk, held: Held, folder: Folder
    ) -> rows.ChunkTask:
        published = self._published.get(chunk.leaf_id)
        return rows.ChunkTask(
            source=table.source,
            table_name=table.table_name,
            table_id=table.table_id,
            snapshot_id=chunk.snapshot_id,
            snapshot_lsn=table.snapshot_lsn or 0,
            chunk=chunk.chunk,
            attempt=chunk.attempt,
            leaf_id=chunk.leaf_id,
            columns=tuple(column.name for column in table.columns),
            key=table.key_columns,
            row_filter=published.row_filter if published else None,
            lower=int(chunk.lower_bound or 0),
            upper=None if chunk.upper_bound is None else int(chunk.upper_bound),
            snapshot=held.name,
            read_lsn=held.lsn,
            storage={leaf.leaf_id: leaf.storage for leaf in table.leaves},
            folder=folder.root,
        )

    def _columns(self, table: CatalogTable) -> frozenset[str]:
        """What the publication sends of it."""
        sent = [set(self._published[leaf.leaf_id].columns) for leaf in table.leaves]
        return frozenset(set.intersection(*sent)) if sent else frozenset()

    def _chunks(self, table: CatalogTable) -> tuple[tuple[int, int, int | None], ...]:
        """Leaf, first block, last block (exclusive; open for the last chunk of a leaf, as it may grow)."""
        planned: list[tuple[int, int, int | None]] = []
        for leaf, pages, size in zip(table.leaves, table.pages, table.sizes, strict=True):
            step = max(1, self._settings.snapshot_chunk_bytes * pages // max(size, 1))
            bounds = list(range(0, max(pages, 1), step))
            uppers: list[int | None] = [*bounds[1:], None]
            planned += [(leaf.leaf_id, low, up) for low, up in zip(bounds, uppers, strict=True)]
        return tuple(planned)

    def _hold(self, *, fresh: bool = False) -> Held:
        """The snapshot at hand, or a new one."""
        if fresh or (self._held is not None and self._held.connection.broken):
            self._let_go()
        if self._held is None:
            self._held = slots.create(self._dsn, None, seconds=self._settings.connect_seconds)
        return self._held

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _catalog(self) -> Connection:
        if self._connection is None or self._connection.closed:
            seconds = self._settings.connect_seconds
            self._connection = connect(self._dsn, connect_seconds=seconds)
        return self._connection

    def _report(self, table_name: str, problem: str) -> None:
        if f"{table_name}: {problem}" not in self._reported:
            self._reported.add(f"{table_name}: {problem}")
            _log.error("%s is left out: %s", table_name, problem)


def _with_columns(row: SourceTable, names: frozenset[str]) -> SourceTable:
    from dataclasses import replace

    return replace(row, columns=tuple(c for c in row.columns if c.name in names))


def _same_in(connection: Connection, table: CatalogTable) -> bool:
    """Whether a snapshot sees the same leaves, storage and columns of a table as there are now.

    The rows of pg_class and pg_attribute are those of the snapshot, also for tables rewritten since.
    """
    oids = [leaf.leaf_id for leaf in table.leaves]
    storage = dict(
        connection.execute(
            "SELECT oid::bigint, relfilenode::bigint FROM pg_class WHERE oid = ANY (%s::oid[])",
            [oids],
        ).fetchall()
    )
    columns = connection.execute(
        "SELECT attname, attnum::int FROM pg_attribute WHERE attrelid = %s::oid "
        "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        [table.oid],
    ).fetchall()
    return storage == {leaf.leaf_id: leaf.storage for leaf in table.leaves} and columns == [
        (column.name, column.attnum) for column in table.columns
    ]
