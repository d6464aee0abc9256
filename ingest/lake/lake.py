"""`Lake`: one job's access to the raw tables: commits, positions and housekeeping."""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.common import records
from ingest.common.errors import Failure
from ingest.lake import raw_schema
from ingest.lake.chunk_table import ChunkTable
from ingest.lake.iceberg_commit import Committer, retry_on_conflict, table_folder
from ingest.lake.model_tables import list_definition_tables
from ingest.lake.parquet_files import DataFile, Folder, write_file
from ingest.lake.source_tables import DONE, RUNNING, SourceTable, SourceTables
from ingest.lake.sql_literals import literal
from ingest.positions.position import Position, current_epochs, latest_per_epoch, min_position
from ingest.positions.writer_lag import PositionSample

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
        self.chunks = ChunkTable(spark)
        self._folders: dict[str, Folder] = {}
        self._commits: dict[str, int] = {}
        self._stored = 0

    def upsert_source(self, source: str, snapshot_hold: str) -> None:
        """Stores in raw.sources the settings of a source that the models use."""
        name, hold = literal(source), literal(snapshot_hold)
        rows = self.spark.sql(f"SELECT snapshot_hold FROM {raw_schema.SOURCES} WHERE source = {name}").collect()
        if [row.snapshot_hold for row in rows] == [snapshot_hold]:
            return
        statement = f"""
            MERGE INTO {raw_schema.SOURCES} t
            USING (SELECT {name} AS source, {hold} AS snapshot_hold, current_timestamp() AS updated_at) s
            ON t.source = {name} AND t.source = s.source
            WHEN MATCHED THEN UPDATE SET snapshot_hold = s.snapshot_hold, updated_at = s.updated_at
            WHEN NOT MATCHED THEN INSERT (source, snapshot_hold, writers, updated_at)
                VALUES (s.source, s.snapshot_hold, NULL, s.updated_at)"""
        retry_on_conflict(lambda: self.spark.sql(statement))

    @property
    def location(self) -> str:
        """The folder of the lake's files, for messages."""
        return self.folder(raw_schema.EVENTS).root

    def store_error(self, source: str, error: str | None) -> None:
        """Stores the current error of a source's jobs (None: none) in raw.sources, for `status`."""
        where = f"WHERE source = {literal(source)}"
        stored = [row.error for row in self.spark.sql(f"SELECT error FROM {raw_schema.SOURCES} {where}").collect()]
        if stored and stored != [error]:
            since = "NULL" if error is None else "current_timestamp()"
            statement = f"UPDATE {raw_schema.SOURCES} SET error = {literal(error)}, error_at = {since} {where}"
            retry_on_conflict(lambda: self.spark.sql(statement))

    def read_error(self, source: str) -> tuple[str, datetime] | None:
        """The current error of a source's jobs, and since when; None if there is none."""
        what = "error, unix_micros(error_at) AS micros"
        query = f"SELECT {what} FROM {raw_schema.SOURCES} WHERE source = {literal(source)} AND error IS NOT NULL"
        rows = self.spark.sql(query).collect()
        return next(((r.error, datetime.fromtimestamp(r.micros / 1e6, timezone.utc)) for r in rows), None)

    def active_writers(self, source: str) -> frozenset[int]:
        """The writers whose minimum is the source's position: those that were set, else all with a position."""
        rows = self.spark.sql(f"SELECT writers FROM {raw_schema.SOURCES} WHERE source = {literal(source)}").collect()
        if rows and rows[0].writers is not None:
            return frozenset(rows[0].writers)
        return frozenset(writer for _, writer in current_epochs(self.positions(source)))

    def next_writers(self, source: str) -> int | None:
        """The number of writers that an incomplete `tidemark set-writers` changes to; None: there is none."""
        query = f"SELECT next_writers FROM {raw_schema.SOURCES} WHERE source = {literal(source)}"
        return next((row.next_writers for row in self.spark.sql(query).collect()), None)

    def set_active_writers(self, source: str, writers: Collection[int], next_writers: int | None = None) -> None:
        """Stores which writers are active from now on, and `next_writers`. The caller holds a lock: see
        `postgres_writers`.
        """
        active, following = literal(sorted(writers)), literal(next_writers)
        statement = f"""
            MERGE INTO {raw_schema.SOURCES} t
            USING (SELECT {literal(source)} AS source, CAST({active} AS ARRAY<INT>) AS writers,
                CAST({following} AS INT) AS next_writers) s
            ON t.source = {literal(source)} AND t.source = s.source
            WHEN MATCHED THEN UPDATE SET
                writers = s.writers, next_writers = s.next_writers, updated_at = current_timestamp()
            WHEN NOT MATCHED THEN INSERT (source, snapshot_hold, writers, next_writers, updated_at)
                VALUES (s.source, NULL, s.writers, s.next_writers, current_timestamp())"""
        retry_on_conflict(lambda: self.spark.sql(statement))

    def purged_positions(self, source: str) -> dict[int, int]:
        """By writer: the position below which its events may have been purged from raw.wal_events."""
        rows = self.spark.sql(f"SELECT purged FROM {raw_schema.SOURCES} WHERE source = {literal(source)}").collect()
        return dict(rows[0].purged or {}) if rows else {}

    def persisted_position(self, source: str) -> int | None:
        """The minimum of the positions that a source's active writers have stored; None if one has none yet.

        Positions are read before the active writers: a writer is active before it commits anything, so none is missed.
        """
        stored = self.positions(source)
        return min_position(stored, source, self.active_writers(source))

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

    def positions(self, source: str | None = None) -> list[Position]:
        """The highest stored position of each writer and epoch (of `source`; None: of all sources)."""
        where = "" if source is None else f"WHERE source = {literal(source)}"
        names = "source, writer, slot, system_id, timeline, start_position"
        rows = self.spark.sql(
            f"SELECT {names}, max(position) AS position, max_by(token, struct(position, updated_at)) AS token "
            f"FROM {raw_schema.POSITIONS} {where} GROUP BY {names}"
        ).collect()
        return latest_per_epoch(Position(**row.asDict()) for row in rows)

    def read_position_samples(self, source: str, epochs: Mapping[int, Position]) -> list[PositionSample]:
        """The positions that writers have stored in these epochs, as far as they are kept. epochs: by writer."""
        wanted = {(writer, epoch.slot, epoch.start_position) for writer, epoch in epochs.items()}
        rows = self.spark.sql(
            "SELECT writer, slot, start_position, position, unix_micros(updated_at) / 1e6D AS stored_at "
            f"FROM {raw_schema.POSITIONS} WHERE source = {literal(source)}"
        ).collect()
        return [
            PositionSample(row.writer, row.position, row.stored_at)
            for row in rows
            if (row.writer, row.slot, row.start_position) in wanted
        ]

    def read_last_commit_time(self, position: Position) -> datetime | None:
        """The commit time of the newest event of a writer below `position`; None if there is none."""
        where = f"source = {literal(position.source)} AND writer = {position.writer}"
        micros = self.spark.sql(
            f"SELECT unix_micros(max(commit_ts)) FROM {raw_schema.EVENTS} "
            f"WHERE {where} AND commit_lsn < {position.position}"
        ).collect()[0][0]
        return None if micros is None else datetime.fromtimestamp(micros / 1e6, timezone.utc)

    def register_start_position(self, position: Position, after: int) -> None:
        """Stores a writer's first position, unless another process has registered one with a start above `after`."""
        kinds = raw_schema.TABLES[raw_schema.POSITIONS].columns
        row = {**position.__dict__, "updated_at": datetime.now(timezone.utc)}
        values = ", ".join(f"CAST({literal(value)} AS {kinds[name]}) AS {name}" for name, value in row.items())
        # Without a MATCHED clause this would be an append, which never conflicts.
        statement = f"""
            MERGE INTO {raw_schema.POSITIONS} t
            USING (SELECT {values}) s
            ON t.source = {literal(position.source)} AND t.source = s.source AND t.writer = s.writer
                AND t.start_position > {after}
            WHEN MATCHED AND t.position < t.start_position THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *"""
        retry_on_conflict(lambda: self.spark.sql(statement))

    def delete_events_from(self, position: Position) -> None:
        """Deletes the writer's events from `position` on.

        The lake may hold part of a transaction that the source sends differently, or never again. It would become
        visible once a later position is stored.
        """
        where = f"source = {literal(position.source)} AND writer = {position.writer}"
        retry_on_conflict(
            lambda: self.spark.sql(
                f"DELETE FROM {raw_schema.EVENTS} WHERE {where} AND commit_lsn >= {position.position}"
            )
        )

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

    def store_position(self, position: Position) -> None:
        """Adds `position` to raw.stream_positions.

        Readers take the maximum, so a lower position changes nothing.
        """
        row = {**position.__dict__, "updated_at": datetime.now(timezone.utc)}
        self.append(raw_schema.POSITIONS, pa.Table.from_pylist([row], schema=records.POSITIONS))
        self._stored += 1

    def run_housekeeping(self, position: Position | None = None) -> None:
        """After enough commits: deletes positions that `position` supersedes, and expires old Iceberg snapshots.

        Raises Failure if another process has reset the writer's stream, so that `position` is no longer valid.
        """
        if position is not None and self._stored >= HOUSEKEEPING_POSITIONS:
            self._stored = 0
            newest = current_epochs(self.positions(position.source)).get((position.source, position.writer), position)
            if newest.start_position > position.start_position:
                where = f"source {position.source}, writer {position.writer}"
                raise Failure("another process has reset this stream", where, "Restart this process")
            self._delete_superseded(position)
        due = [table for table, commits in self._commits.items() if commits >= HOUSEKEEPING_COMMITS]
        older_than = int((time.time() - RAW_SNAPSHOT_RETENTION_SECONDS) * 1000)
        for table in due:
            self._commits[table] = 0
            self.committer.expire_snapshots(table, older_than)

    def expire_snapshots(self, seconds: float, keep: int = 20) -> dict[str, int]:
        """Expires the Iceberg snapshots of Tidemark's tables, including the models', that are older than `seconds`,
        except the newest `keep` of each table and those of branches. Deletes their unshared files. Returns the number
        by table; a table that is dropped in the meantime is skipped.
        """
        older_than = int((time.time() - seconds) * 1000)
        tables = self._list_tables()
        expired: dict[str, int] = {}
        for table in tables:
            try:
                expired[table] = self.committer.expire_snapshots(table, older_than, keep)
            except (PySparkException, Py4JJavaError):
                if self.spark.catalog.tableExists(table):
                    raise
        return {table: count for table, count in expired.items() if count}

    def _list_tables(self) -> list[str]:
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

    def _delete_superseded(self, position: Position) -> None:
        """Deletes the positions that `position` supersedes: whole files, so only metadata changes."""
        same = " AND ".join(
            f"{name} = {literal(getattr(position, name))}"
            for name in ("source", "writer", "slot", "system_id", "start_position")
        )
        below = f"position < {literal(position.position)}"
        retry_on_conflict(lambda: self.spark.sql(f"DELETE FROM {raw_schema.POSITIONS} WHERE {same} AND {below}"))
