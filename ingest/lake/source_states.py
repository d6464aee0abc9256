"""raw.sources: what the lake stores of each source: its snapshot hold, its active writers, the error of its jobs."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.sql import SparkSession

from ingest.lake.cached_reader import CachedReader
from ingest.lake.iceberg_commit import retry_on_conflict
from ingest.lake.raw_schema import SOURCES
from ingest.lake.sql_literals import literal
from ingest.lake.stream_positions import StreamPositions
from ingest.positions.position import current_epochs


@dataclass(frozen=True)
class SourceWriters:
    """active: the writers whose minimum is the source's position: those that were set, else all with a position.
    next_writers: the number that an incomplete `tidemark set-writers` changes to; None: there is none.
    """

    active: frozenset[int]
    next_writers: int | None


class SourceStates:
    """One row per source."""

    def __init__(self, spark: SparkSession, positions: StreamPositions) -> None:
        self._spark, self._positions = spark, positions
        self._reader = CachedReader(spark, SOURCES)

    def upsert(self, source: str, snapshot_hold: str) -> None:
        """Stores the settings of a source that the models use."""
        name, hold = literal(source), literal(snapshot_hold)
        rows = self._reader.collect(f"SELECT snapshot_hold FROM {SOURCES} WHERE source = {name}")
        if [row.snapshot_hold for row in rows] == [snapshot_hold]:
            return
        statement = f"""
            MERGE INTO {SOURCES} t
            USING (SELECT {name} AS source, {hold} AS snapshot_hold, current_timestamp() AS updated_at) s
            ON t.source = {name} AND t.source = s.source
            WHEN MATCHED THEN UPDATE SET snapshot_hold = s.snapshot_hold, updated_at = s.updated_at
            WHEN NOT MATCHED THEN INSERT (source, snapshot_hold, writers, updated_at)
                VALUES (s.source, s.snapshot_hold, NULL, s.updated_at)"""
        retry_on_conflict(lambda: self._spark.sql(statement))

    def store_error(self, source: str, error: str | None) -> None:
        """Stores the current error of a source's jobs (None: none), for `status`."""
        where = f"WHERE source = {literal(source)}"
        stored = [row.error for row in self._reader.collect(f"SELECT error FROM {SOURCES} {where}")]
        if stored and stored != [error]:
            since = "NULL" if error is None else "current_timestamp()"
            statement = f"UPDATE {SOURCES} SET error = {literal(error)}, error_at = {since} {where}"
            retry_on_conflict(lambda: self._spark.sql(statement))

    def read_error(self, source: str) -> tuple[str, datetime] | None:
        """The current error of a source's jobs, and since when; None if there is none."""
        what = "error, unix_micros(error_at) AS micros"
        query = f"SELECT {what} FROM {SOURCES} WHERE source = {literal(source)} AND error IS NOT NULL"
        rows = self._reader.collect(query)
        return next(((r.error, datetime.fromtimestamp(r.micros / 1e6, timezone.utc)) for r in rows), None)

    def read_writers(self, source: str) -> SourceWriters:
        """The source's active writers, and the number that they are being changed to."""
        query = f"SELECT writers, next_writers FROM {SOURCES} WHERE source = {literal(source)}"
        writers, next_writers = next(iter(self._reader.collect(query)), (None, None))
        if writers is None:
            writers = [writer for _, writer in current_epochs(self._positions.read(source))]
        return SourceWriters(frozenset(writers), next_writers)

    def read_active_writers(self, source: str) -> frozenset[int]:
        """The active writers of `read_writers`."""
        return self.read_writers(source).active

    def set_active_writers(self, source: str, writers: Collection[int], next_writers: int | None = None) -> None:
        """Stores which writers are active from now on, and `next_writers`. The caller holds a lock: see
        `postgres_writers`.
        """
        active, following = literal(sorted(writers)), literal(next_writers)
        statement = f"""
            MERGE INTO {SOURCES} t
            USING (SELECT {literal(source)} AS source, CAST({active} AS ARRAY<INT>) AS writers,
                CAST({following} AS INT) AS next_writers) s
            ON t.source = {literal(source)} AND t.source = s.source
            WHEN MATCHED THEN UPDATE SET
                writers = s.writers, next_writers = s.next_writers, updated_at = current_timestamp()
            WHEN NOT MATCHED THEN INSERT (source, snapshot_hold, writers, next_writers, updated_at)
                VALUES (s.source, NULL, s.writers, s.next_writers, current_timestamp())"""
        retry_on_conflict(lambda: self._spark.sql(statement))

    def read_purged_positions(self, source: str) -> dict[int, int]:
        """By writer: the position below which its events may have been purged from raw.wal_events."""
        rows = self._reader.collect(f"SELECT purged FROM {SOURCES} WHERE source = {literal(source)}")
        return dict(rows[0].purged or {}) if rows else {}
