"""`Lake`: one job's access to the raw tables: commits and housekeeping."""

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.lake import raw_schema
from ingest.lake.iceberg_commit import Committer, retry_on_conflict, table_folder
from ingest.lake.model_tables import list_definition_tables
from ingest.lake.parquet_files import DataFile, Folder, write_file
from ingest.lake.snapshot_chunks import SnapshotChunks
from ingest.lake.source_states import SourceStates
from ingest.lake.source_tables import DONE, RUNNING, SourceTable, SourceTables
from ingest.lake.spark_session import file_search
from ingest.lake.sql_literals import literal
from ingest.lake.stream_positions import StreamPositions
from ingest.positions.position import Position, min_position

# After so many commits of this process to a table, its old Iceberg snapshots are expired; recent ones are kept for
# readers. This bounds the metadata that each commit rewrites.
HOUSEKEEPING_COMMITS = 200
# Each stored position is a separate file, and every run opens all of them.
HOUSEKEEPING_POSITIONS = 20
RAW_SNAPSHOT_RETENTION_SECONDS = 600
# A younger folder may belong to a commit that has not written its first file yet.
EMPTY_FOLDER_SECONDS = 3600
# Schemas with Tidemark's tables, without those of definitions.
SCHEMAS = ("raw", "core")


class Lake:
    """The raw tables; the constructor creates or migrates them."""

    def __init__(self, spark: SparkSession, committer: Committer | None = None) -> None:
        self.spark = spark
        self.committer = committer or Committer(spark)
        raw_schema.ensure_tables(spark)
        self.tables = SourceTables(spark)
        self.chunks = SnapshotChunks(spark)
        self.positions = StreamPositions(spark, append=partial(self.append, raw_schema.POSITIONS))
        self.sources = SourceStates(spark, self.positions)
        self._folders: dict[str, Folder] = {}
        self._commits: dict[str, int] = {}

    @property
    def location(self) -> str:
        """The folder of the lake's files, for messages."""
        return self.folder(raw_schema.EVENTS).root

    def persisted_position(self, source: str) -> int | None:
        """The minimum of the positions that a source's active writers have stored; None if one has none yet.

        Positions are read before the active writers: a writer is active before it commits anything, so none is missed.
        """
        stored = self.positions.read(source)
        return min_position(stored, source, self.sources.read_active_writers(source))

    def folder(self, table: str) -> Folder:
        """The folder for data files of `table`."""
        if table not in self._folders:
            self._folders[table] = table_folder(self.spark, table)
        return self._folders[table]

    def add(self, table: str, files: Sequence[DataFile]) -> None:
        """Adds `files`, the only files of their folders, to `table`: see `Committer.add`."""
        if files:
            self.committer.add(table, [file.path for file in files])
            self._commits[table] = self._commits.get(table, 0) + 1

    def append(self, table: str, rows: pa.Table) -> None:
        """Appends `rows` to `table` in one commit."""
        self.add(table, [write_file(self.file_folder(table), rows)])

    def commit_folder(self, table: str) -> Folder:
        """A new folder for the files of one commit to `table`."""
        return self.folder(table).new_subfolder()

    def file_folder(self, table: str) -> Folder:
        """The folder for one uniquely named file: the table's, unless each commit needs a separate folder."""
        return self.commit_folder(table) if self.committer.adds_folders else self.folder(table)

    def remove_empty_folders(self) -> int:
        """Removes empty folders, whose files were expired, purged or never committed; returns their number."""
        tables = (raw_schema.EVENTS, raw_schema.SNAPSHOT_ROWS, raw_schema.POSITIONS)
        return sum(self.folder(table).remove_empty(EMPTY_FOLDER_SECONDS) for table in tables)

    def read_last_commit_time(self, position: Position) -> datetime | None:
        """The commit time of the newest event of a writer below `position`; None if there is none."""
        where = f"source = {literal(position.source)} AND writer = {position.writer}"
        micros = self.spark.sql(
            f"SELECT unix_micros(max(commit_ts)) FROM {raw_schema.EVENTS} "
            f"WHERE {where} AND commit_lsn < {position.position}"
        ).collect()[0][0]
        return None if micros is None else datetime.fromtimestamp(micros / 1e6, timezone.utc)

    def delete_events_from(self, position: Position) -> None:
        """Deletes the writer's events from `position` on.

        The lake may hold part of a transaction that the source sends differently, or never again. It would become
        visible once a later position is stored.
        """
        where = f"source = {literal(position.source)} AND writer = {position.writer}"
        statement = f"DELETE FROM {raw_schema.EVENTS} WHERE {where} AND commit_lsn >= {position.position}"
        with file_search(self.spark):
            retry_on_conflict(lambda: self.spark.sql(statement))

    def discard_timeline(self, position: Position) -> None:
        """After a failover: deletes the events after `position` and queues the snapshots that were read after it again.

        Both may come from a timeline that the server no longer follows.
        """

        def snapshots_after_fork() -> list[SourceTable]:
            tables = self.tables.read(position.source).values()
            started = [table for table in tables if table.state in (RUNNING, DONE)]
            return [t for t in started if t.state == RUNNING or (t.complete_lsn or 0) >= position.position]

        while lost := snapshots_after_fork():
            self.tables.upsert(
                position.source, [table.with_snapshot_queued("the cluster failed over") for table in lost]
            )
        self.delete_events_from(position)

    def run_housekeeping(self, position: Position | None = None) -> None:
        """After enough commits: deletes positions that `position` supersedes, and expires old Iceberg snapshots.

        Raises Failure if another process has reset the writer's stream, so that `position` is no longer valid.
        """
        if position is not None and self.positions.added >= HOUSEKEEPING_POSITIONS:
            self.positions.delete_superseded(position)
        due = [table for table, commits in self._commits.items() if commits >= HOUSEKEEPING_COMMITS]
        older_than = int((time.time() - RAW_SNAPSHOT_RETENTION_SECONDS) * 1000)
        for table in due:
            self._commits[table] = 0
            self.committer.expire_snapshots(table, older_than)

    def expire_snapshots(
        self, seconds: float, keep: int = 20, *, tables: Sequence[str] | None = None
    ) -> dict[str, int]:
        """Expires the Iceberg snapshots of `tables` (None: of all that `list_tables` returns) that are older than
        `seconds`, except the newest `keep` of each table and those of branches. Deletes their unshared files. Returns
        the number by table; a table that is dropped in the meantime is skipped.
        """
        older_than = int((time.time() - seconds) * 1000)
        expired: dict[str, int] = {}
        for table in self.list_tables() if tables is None else tables:
            try:
                expired[table] = self.committer.expire_snapshots(table, older_than, keep)
            except (PySparkException, Py4JJavaError):
                if self.spark.catalog.tableExists(table):
                    raise
        return {table: count for table, count in expired.items() if count}

    def list_tables(self) -> list[str]:
        """Tidemark's tables: those of its schemas, and the rows and the log of each definition."""
        schemas = [row[0] for row in self.spark.sql("SHOW NAMESPACES").collect()]
        tables = [
            f"{schema}.{row.tableName}"
            for schema in SCHEMAS
            if schema in schemas
            for row in self.spark.sql(f"SHOW TABLES IN {schema}").collect()
            if not row.isTemporary
        ]
        return tables + [each for table in list_definition_tables(self.spark) for each in (table, f"{table}__ops")]
