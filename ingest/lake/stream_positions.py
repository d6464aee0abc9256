"""raw.stream_positions: the position up to which each writer has committed its stream.

Rows are added, not updated: the position of a writer in an epoch is the maximum. Superseded rows are deleted from
time to time.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timezone

import pyarrow as pa
from pyspark.sql import SparkSession

from ingest.common import records
from ingest.common.errors import Failure
from ingest.lake.cached_reader import CachedReader
from ingest.lake.iceberg_commit import retry_on_conflict
from ingest.lake.raw_schema import POSITIONS, TABLES
from ingest.lake.spark_session import file_search
from ingest.lake.sql_literals import literal
from ingest.positions.held_positions import PositionSample
from ingest.positions.position import Position, current_epochs, latest_per_epoch


def read_positions(reader: CachedReader, source: str | None = None) -> list[Position]:
    """The highest stored position of each writer and epoch of `source` (None: of all sources)."""
    where = "" if source is None else f"WHERE source = {literal(source)}"
    names = "source, writer, slot, system_id, timeline, start_position, position, token"
    # Few rows, and an aggregate would be a second stage of Spark.
    rows = reader.collect(f"SELECT {names}, unix_micros(updated_at) AS stored_at FROM {POSITIONS} {where}")
    # Of a position that was stored twice, the last token.
    rows.sort(key=lambda row: row.stored_at, reverse=True)
    return latest_per_epoch(Position(*row[:-1]) for row in rows)


class StreamPositions:
    """The positions of all sources."""

    def __init__(self, spark: SparkSession, append: Callable[[pa.Table], None]) -> None:
        """append: commits rows to raw.stream_positions."""
        self._spark, self._append = spark, append
        self._reader = CachedReader(spark, POSITIONS)
        # Rows added since the last `delete_superseded`.
        self.added = 0

    def read(self, source: str | None = None) -> list[Position]:
        """See `read_positions`."""
        return read_positions(self._reader, source)

    def read_samples(self, source: str, epochs: Mapping[int, Position]) -> list[PositionSample]:
        """The positions that writers have stored in these epochs, as far as they are kept. epochs: by writer."""
        wanted = {(writer, epoch.slot, epoch.start_position) for writer, epoch in epochs.items()}
        rows = self._spark.sql(
            "SELECT writer, slot, start_position, position, unix_micros(updated_at) / 1e6D AS stored_at "
            f"FROM {POSITIONS} WHERE source = {literal(source)}"
        ).collect()
        return [
            PositionSample(row.writer, row.position, row.stored_at)
            for row in rows
            if (row.writer, row.slot, row.start_position) in wanted
        ]

    def register_start(self, position: Position, after: int) -> None:
        """Stores a writer's first position, unless another process has registered one with a start above `after`."""
        kinds = TABLES[POSITIONS].columns
        row = {**position.__dict__, "updated_at": datetime.now(timezone.utc)}
        values = ", ".join(f"CAST({literal(value)} AS {kinds[name]}) AS {name}" for name, value in row.items())
        # Without a MATCHED clause this would be an append, which never conflicts.
        statement = f"""
            MERGE INTO {POSITIONS} t
            USING (SELECT {values}) s
            ON t.source = {literal(position.source)} AND t.source = s.source AND t.writer = s.writer
                AND t.start_position > {after}
            WHEN MATCHED AND t.position < t.start_position THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *"""
        retry_on_conflict(lambda: self._spark.sql(statement))

    def store(self, position: Position) -> None:
        """Adds `position`. Readers take the maximum, so a lower position changes nothing."""
        row = {**position.__dict__, "updated_at": datetime.now(timezone.utc)}
        self._append(pa.Table.from_pylist([row], schema=records.POSITIONS))
        self.added += 1

    def delete_superseded(self, position: Position) -> None:
        """Deletes the positions that `position` supersedes: whole files, so only metadata changes.

        Raises Failure if another process has reset the writer's stream, so that `position` is no longer valid.
        """
        self.added = 0
        newest = current_epochs(self.read(position.source)).get((position.source, position.writer), position)
        if newest.start_position > position.start_position:
            where = f"source {position.source}, writer {position.writer}"
            raise Failure("another process has reset this stream", where, "Restart this process")
        same = " AND ".join(
            f"{name} = {literal(getattr(position, name))}"
            for name in ("source", "writer", "slot", "system_id", "start_position")
        )
        below = f"position < {literal(position.position)}"
        with file_search(self._spark):
            retry_on_conflict(lambda: self._spark.sql(f"DELETE FROM {POSITIONS} WHERE {same} AND {below}"))
