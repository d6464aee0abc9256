"""`Lake`: the raw tables at hand of one job: files into them, positions, and upkeep."""

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timezone

import pyarrow as pa
from pyspark.sql import SparkSession

from ingest.common.errors import Failure
from ingest.lake import raw_schema
from ingest.lake.chunk_table import ChunkTable
from ingest.lake.iceberg_commit import Committer, retried, table_folder
from ingest.lake.parquet_files import File, Folder, written
from ingest.lake.source_tables import DONE, RUNNING, SourceTable, SourceTables
from ingest.lake.sql_literals import literal
from ingest.positions.position import Position, current, incarnations, persisted

_POSITIONS = pa.schema(
    [
        ("source", pa.string()),
        ("writer", pa.int32()),
        ("slot", pa.string()),
        ("system_id", pa.string()),
        ("timeline", pa.int32()),
        ("start_position", pa.int64()),
        ("position", pa.int64()),
        ("token", pa.string()),
        ("updated_at", pa.timestamp("us", tz="UTC")),
    ]
)

# After so many commits of this process to a table its old snapshots are forgotten, the younger ones
# kept for whoever reads them. It bounds the metadata that each commit writes anew.
UPKEEP_COMMITS = 200
# Each stored position is a file of its own, and every run opens all that are there.
PRUNE_POSITIONS = 20
KEEP_SNAPSHOTS_SECONDS = 600
# A folder of a commit that is younger may get its first file yet.
EMPTY_FOLDER_SECONDS = 3600
# What has tables of ours; staging has views only.
SCHEMAS = ("raw", "core", "buckets")


class Lake:
    """The raw tables, made or migrated when this is made."""

    def __init__(self, spark: SparkSession, committer: Committer | None = None) -> None:
        self.spark = spark
        self.committer = committer or Committer(spark)
        raw_schema.ensure(spark)
        self.tables = SourceTables(spark)
        self.chunks = ChunkTable(spark)
        self._folders: dict[str, Folder] = {}
        self._commits: dict[str, int] = {}
        self._stored = 0

    def describe(self, source: str, snapshot_hold: str) -> None:
        """Says in raw.sources what the models have to know of a source."""
        told, scope = literal(source), literal(snapshot_hold)
        found = self.spark.sql(f"SELECT snapshot_hold FROM {raw_schema.SOURCES} WHERE source = {told}").collect()
        if [row.snapshot_hold for row in found] == [snapshot_hold]:
            return
        statement = f"""
            MERGE INTO {raw_schema.SOURCES} t
            USING (SELECT {told} AS source, {scope} AS snapshot_hold, current_timestamp() AS updated_at) s
            ON t.source = {told} AND t.source = s.source
            WHEN MATCHED THEN UPDATE SET snapshot_hold = s.snapshot_hold, updated_at = s.updated_at
            WHEN NOT MATCHED THEN INSERT (source, snapshot_hold, writers, updated_at)
                VALUES (s.source, s.snapshot_hold, NULL, s.updated_at)"""
        retried(lambda: self.spark.sql(statement))

    @property
    def location(self) -> str:
        """The folder of the lake's files, for messages."""
        return self.folder(raw_schema.EVENTS).root

    def report(self, source: str, error: str | None) -> None:
        """Stores in raw.sources what the jobs of a source fail with at present (None: nothing), for `status`."""
        where = f"WHERE source = {literal(source)}"
        told = [row.error for row in self.spark.sql(f"SELECT error FROM {raw_schema.SOURCES} {where}").collect()]
        if told and told != [error]:
            since = "NULL" if error is None else "current_timestamp()"
            statement = f"UPDATE {raw_schema.SOURCES} SET error = {literal(error)}, error_at = {since} {where}"
            retried(lambda: self.spark.sql(statement))

    def error(self, source: str) -> tuple[str, datetime] | None:
        """What the jobs of a source fail with, and since when."""
        what = "error, unix_micros(error_at) AS micros"
        query = f"SELECT {what} FROM {raw_schema.SOURCES} WHERE source = {literal(source)} AND error IS NOT NULL"
        rows = self.spark.sql(query).collect()
        return next(((r.error, datetime.fromtimestamp(r.micros / 1e6, timezone.utc)) for r in rows), None)

    def writers(self, source: str) -> frozenset[int]:
        """The writers whose minimum is the source's position; a lake of an older version has but those with one."""
        rows = self.spark.sql(f"SELECT writers FROM {raw_schema.SOURCES} WHERE source = {literal(source)}").collect()
        if rows and rows[0].writers is not None:
            return frozenset(rows[0].writers)
        return frozenset(writer for _, writer in current(self.positions(source)))

    def count_writers(self, source: str, writers: Collection[int]) -> None:
        """Says which writers count from now on. One at a time may say it: see `postgres.writers`."""
        statement = f"""
            MERGE INTO {raw_schema.SOURCES} t
            USING (SELECT {literal(source)} AS source, {literal(sorted(writers))} AS writers) s
            ON t.source = {literal(source)} AND t.source = s.source
            WHEN MATCHED THEN UPDATE SET writers = s.writers, updated_at = current_timestamp()
            WHEN NOT MATCHED THEN INSERT (source, snapshot_hold, writers, updated_at)
                VALUES (s.source, NULL, s.writers, current_timestamp())"""
        retried(lambda: self.spark.sql(statement))

    def purged(self, source: str) -> dict[int, int]:
        """The position below which records of each writer may be gone from raw.wal_events."""
        rows = self.spark.sql(f"SELECT purged FROM {raw_schema.SOURCES} WHERE source = {literal(source)}").collect()
        return dict(rows[0].purged or {}) if rows else {}

    def persisted(self, source: str) -> int | None:
        """The position that all writers of a source have stored, None before there is one.

        Positions are read first: a writer counts before it has anything to land, so none is passed over.
        """
        stored = self.positions(source)
        return persisted(stored, source, self.writers(source))

    def folder(self, table: str) -> Folder:
        """Where the files of `table` go."""
        if table not in self._folders:
            self._folders[table] = table_folder(self.spark, table)
        return self._folders[table]

    def add(self, table: str, files: Sequence[File]) -> None:
        """`files`, all that there is in their folders, become rows of `table`: see `Committer.add`."""
        if files:
            self.committer.add(table, [file.path for file in files])
            self._commits[table] = self._commits.get(table, 0) + 1

    def append(self, table: str, rows: pa.Table) -> None:
        """`rows` become rows of `table` in one commit."""
        self.add(table, [written(self.file_folder(table), rows)])

    def landing_folder(self, table: str) -> Folder:
        """A new folder for the files of one commit to `table`."""
        return self.folder(table).new()

    def file_folder(self, table: str) -> Folder:
        """The folder for one file with a name that no other has: the table's, unless each commit needs its own."""
        return self.landing_folder(table) if self.committer.adds_folders else self.folder(table)

    def remove_empty_folders(self) -> int:
        """Removes folders of commits whose files are gone: expired, purged or never committed; gives their number."""
        tables = (raw_schema.EVENTS, raw_schema.SNAPSHOT_ROWS, raw_schema.POSITIONS)
        return sum(self.folder(table).remove_empty(EMPTY_FOLDER_SECONDS) for table in tables)

    def positions(self, source: str | None = None) -> list[Position]:
        """The stored positions (of `source`): of each writer and incarnation the furthest."""
        where = "" if source is None else f"WHERE source = {literal(source)}"
        names = "source, writer, slot, system_id, timeline, start_position"
        rows = self.spark.sql(
            f"SELECT {names}, max(position) AS position, max_by(token, struct(position, updated_at)) AS token "
            f"FROM {raw_schema.POSITIONS} {where} GROUP BY {names}"
        ).collect()
        return incarnations(Position(**row.asDict()) for row in rows)

    def begin(self, position: Position, after: int) -> None:
        """Adds a writer's first position, unless another process has begun from later than `after` on meanwhile."""
        kinds = raw_schema.TABLES[raw_schema.POSITIONS].columns
        row = {**position.__dict__, "updated_at": datetime.now(timezone.utc)}
        values = ", ".join(f"CAST({literal(value)} AS {kinds[name]}) AS {name}" for name, value in row.items())
        # With inserts alone it would be an append, which comes into conflict with nobody.
        statement = f"""
            MERGE INTO {raw_schema.POSITIONS} t
            USING (SELECT {values}) s
            ON t.source = {literal(position.source)} AND t.source = s.source AND t.writer = s.writer
                AND t.start_position > {after}
            WHEN MATCHED AND t.position < t.start_position THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *"""
        retried(lambda: self.spark.sql(statement))

    def discard(self, position: Position) -> None:
        """Deletes the writer's records from `position` on: what was landed of a transaction that may come otherwise, or
        never, would show when later positions are stored.
        """
        where = f"source = {literal(position.source)} AND writer = {position.writer}"
        retried(
            lambda: self.spark.sql(
                f"DELETE FROM {raw_schema.EVENTS} WHERE {where} AND commit_lsn >= {position.position}"
            )
        )

    def forsake(self, position: Position) -> None:
        """What is beyond `position` in the source's log may be of a timeline that was left: records that were landed of
        it are deleted, and snapshots that were read of it begin anew.
        """

        def of_the_lost() -> list[SourceTable]:
            tables = self.tables.read(position.source).values()
            begun = [table for table in tables if table.state in (RUNNING, DONE)]
            return [t for t in begun if t.state == RUNNING or (t.complete_lsn or 0) >= position.position]

        while lost := of_the_lost():
            self.tables.put(position.source, [table.queued("the cluster failed over") for table in lost])
        self.discard(position)

    def store(self, position: Position) -> None:
        """Adds `position` to raw.stream_positions.

        The maximum counts, so a lower one changes nothing.
        """
        row = {**position.__dict__, "updated_at": datetime.now(timezone.utc)}
        self.append(raw_schema.POSITIONS, pa.Table.from_pylist([row], schema=_POSITIONS))
        self._stored += 1

    def upkeep(self, position: Position | None = None) -> None:
        """Forgets what nobody needs, when enough was committed: what `position` supersedes, and old snapshots.

        Raises Failure if the writer's stream was begun anew meanwhile, so that `position` counts for nothing.
        """
        if position is not None and self._stored >= PRUNE_POSITIONS:
            self._stored = 0
            newest = current(self.positions(position.source)).get((position.source, position.writer), position)
            if newest.start_position > position.start_position:
                where = f"source {position.source}, writer {position.writer}"
                raise Failure("the stream was begun anew by another process", where, "Start this one again")
            self._prune(position)
        due = [table for table, commits in self._commits.items() if commits >= UPKEEP_COMMITS]
        older_than = int((time.time() - KEEP_SNAPSHOTS_SECONDS) * 1000)
        for table in due:
            self._commits[table] = 0
            self.committer.expire(table, older_than)

    def expire_snapshots(self, seconds: float, keep: int = 20) -> dict[str, int]:
        """Expires the Iceberg snapshots of all tables, the models' too, that are older than so many seconds, but for
        the newest `keep` of each and those of branches; gives how many by table, where there were any. Files that
        only they had are deleted.
        """
        older_than = int((time.time() - seconds) * 1000)
        schemas = [row[0] for row in self.spark.sql("SHOW NAMESPACES").collect()]
        tables = [
            f"{schema}.`{row.tableName}`"
            for schema in SCHEMAS
            if schema in schemas
            for row in self.spark.sql(f"SHOW TABLES IN {schema}").collect()
            if not row.isTemporary
        ]
        expired = {table: self.committer.expire(table, older_than, keep) for table in tables}
        return {table: count for table, count in expired.items() if count}

    def _prune(self, position: Position) -> None:
        """Removes what `position` supersedes: whole files, so the metadata alone changes."""
        same = " AND ".join(
            f"{name} = {literal(getattr(position, name))}"
            for name in ("source", "writer", "slot", "system_id", "start_position")
        )
        below = f"position < {literal(position.position)}"
        retried(lambda: self.spark.sql(f"DELETE FROM {raw_schema.POSITIONS} WHERE {same} AND {below}"))
