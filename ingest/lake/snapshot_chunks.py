"""raw.snapshot_chunks: the chunks of each snapshot and the worker that reads each.

One row per (snapshot_id, chunk). Updates are conditional on the `rev` that was read, at serializable
isolation, as in raw.source_tables. A lease only decides when another worker may claim the chunk; only
the attempt that is marked done is valid.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from ingest.lake.iceberg_commit import retry_on_conflict
from ingest.lake.raw_schema import CHUNKS, TABLES
from ingest.lake.source_tables import DONE, QUEUED, RUNNING
from ingest.lake.sql_literals import literal


@dataclass(frozen=True)
class Chunk:
    """One row of raw.snapshot_chunks.

    Bounds are block numbers of the partition's file, or a document's `_id`; the upper bound is exclusive; None:
    unbounded. row_keys: the rows with these keys, instead of a range. not_before: the lowest snapshot LSN at which
    it may be read; read_lsn: the snapshot LSN at which it was read.
    """

    source: str
    table_id: str
    snapshot_id: str
    chunk: int
    partition_id: int
    lower_bound: str | None
    upper_bound: str | None
    row_keys: tuple[str, ...] | None = None
    not_before: int | None = None
    owner: str | None = None
    lease_until: datetime | None = None
    attempt: int = 0
    state: str = QUEUED
    row_count: int | None = None
    read_lsn: int | None = None
    rev: int = 1

    def is_claimable(self, now: datetime) -> bool:
        """Whether it can be claimed: it is queued, or its lease has expired."""
        lapsed = self.lease_until is not None and self.lease_until < now
        return self.state == QUEUED or (self.state == RUNNING and lapsed)


def make_claimed(chunks: Iterable[Chunk], owner: str, chunk_lease_seconds: float) -> list[Chunk]:
    """New `chunks`, claimed by `owner` from the start."""
    until = _lease_end(chunk_lease_seconds)
    return [replace(chunk, state=RUNNING, owner=owner, attempt=1, lease_until=until) for chunk in chunks]


class ChunkStats(NamedTuple):
    """Result of reading a chunk: number of rows, and the snapshot LSN at which they were read."""

    rows: int
    read_lsn: int


_FIELDS = tuple(Chunk.__dataclass_fields__)


class SnapshotChunks:
    """Reads and updates the table. One call may update chunks of several snapshots."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, snapshot_ids: Iterable[str]) -> list[Chunk]:
        """The chunks of these snapshots, ordered by snapshot and chunk."""
        wanted = ", ".join(literal(snapshot_id) for snapshot_id in snapshot_ids)
        if not wanted:
            return []
        rows = self._spark.sql(f"SELECT {', '.join(_FIELDS)} FROM {CHUNKS} WHERE snapshot_id IN ({wanted})").collect()
        chunks = [_parse_chunk(row.asDict()) for row in rows]
        return sorted(chunks, key=lambda chunk: (chunk.snapshot_id, chunk.chunk))

    def insert(self, chunks: Sequence[Chunk]) -> None:
        """Adds those of `chunks` that do not exist yet, in one commit."""
        names = ", ".join(_FIELDS)
        rows = ", ".join(f"({', '.join(_cast_literal(chunk, name) for name in _FIELDS)})" for chunk in chunks)
        snapshots = ", ".join(sorted({literal(chunk.snapshot_id) for chunk in chunks}))
        # Without a MATCHED clause Spark turns this into an append, which never conflicts: all claimers would succeed.
        statement = f"""
            MERGE INTO {CHUNKS} t
            USING (SELECT {names}, {_now_literal()} AS updated_at FROM VALUES {rows} AS v ({names})) s
            ON t.snapshot_id IN ({snapshots}) AND t.snapshot_id = s.snapshot_id AND t.chunk = s.chunk
            WHEN MATCHED AND t.rev < 0 THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *"""
        retry_on_conflict(lambda: self._spark.sql(statement))

    def delete_snapshots(self, snapshot_ids: Iterable[str]) -> None:
        """Deletes the chunks of snapshots that are no longer read."""
        wanted = ", ".join(literal(snapshot_id) for snapshot_id in snapshot_ids)
        if wanted:
            statement = f"DELETE FROM {CHUNKS} WHERE snapshot_id IN ({wanted})"
            retry_on_conflict(lambda: self._spark.sql(statement))

    def claim(self, chunks: Sequence[Chunk], owner: str, chunk_lease_seconds: float) -> list[Chunk]:
        """Claims free chunks; returns those claimed, as stored.

        owner: must be globally unique.
        """
        return self._update(
            chunks,
            owner,
            f"state = '{RUNNING}', owner = {literal(owner)}, attempt = attempt + 1, "
            f"lease_until = {literal(_lease_end(chunk_lease_seconds))}",
        )

    def renew(self, chunks: Sequence[Chunk], chunk_lease_seconds: float) -> list[Chunk]:
        """Renews the lease of claimed `chunks`; returns those that still belong to their owner."""
        return self._update(chunks, chunks[0].owner, f"lease_until = {literal(_lease_end(chunk_lease_seconds))}")

    def mark_done(self, chunks: Sequence[Chunk], stats: Sequence[ChunkStats]) -> list[Chunk]:
        """Marks claimed `chunks` as done; returns those marked."""
        assignments = [f"state = '{DONE}'"]
        for name, values in (("row_count", [c.rows for c in stats]), ("read_lsn", [c.read_lsn for c in stats])):
            cases = " ".join(
                f"WHEN {_matches(chunk)} THEN {value}L" for chunk, value in zip(chunks, values, strict=True)
            )
            assignments.append(f"{name} = CASE {cases} END")
        return self._update(chunks, chunks[0].owner, ", ".join(assignments))

    def release(self, chunks: Sequence[Chunk]) -> None:
        """Releases claimed `chunks`, so that any worker can claim them at once."""
        self._update(chunks, None, f"state = '{QUEUED}', owner = NULL, lease_until = NULL")

    def _update(self, chunks: Sequence[Chunk], owner: str | None, assignments: str) -> list[Chunk]:
        """Updates those of `chunks` whose stored version is the one read.

        Returns those that belong to `owner` by this update.
        """
        seen = " OR ".join(f"({_matches(chunk)} AND rev = {chunk.rev})" for chunk in chunks)
        statement = f"UPDATE {CHUNKS} SET {assignments}, rev = rev + 1, updated_at = {_now_literal()} WHERE {seen}"
        snapshots = {chunk.snapshot_id for chunk in chunks}

        def all_changed() -> bool:
            now = {(c.snapshot_id, c.chunk, c.rev) for c in self.read(snapshots)}
            return not now & {(c.snapshot_id, c.chunk, c.rev) for c in chunks}

        retry_on_conflict(lambda: self._spark.sql(statement), unless=all_changed)
        after = {(chunk.snapshot_id, chunk.chunk): chunk.rev + 1 for chunk in chunks}
        return [
            chunk
            for chunk in self.read(snapshots)
            if chunk.owner == owner and after.get((chunk.snapshot_id, chunk.chunk)) == chunk.rev
        ]


def _matches(chunk: Chunk) -> str:
    return f"snapshot_id = {literal(chunk.snapshot_id)} AND chunk = {chunk.chunk}"


def _lease_end(chunk_lease_seconds: float) -> datetime:
    return datetime.now(timezone.utc) + timedelta(seconds=chunk_lease_seconds)


def _cast_literal(chunk: Chunk, name: str) -> str:
    return f"CAST({literal(getattr(chunk, name))} AS {TABLES[CHUNKS].columns[name]})"


def _now_literal() -> str:
    return literal(datetime.now(timezone.utc))


def _parse_chunk(values: dict[str, Any]) -> Chunk:
    lease = values["lease_until"]
    # Spark returns naive timestamps in the local time zone of the process.
    values["lease_until"] = None if lease is None else lease.astimezone(timezone.utc)
    values["row_keys"] = None if values["row_keys"] is None else tuple(values["row_keys"])
    return Chunk(**values)
