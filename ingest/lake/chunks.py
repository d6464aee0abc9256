"""raw.chunks: what one snapshot has to read, piece by piece, and who reads which.

One row per (snapshot_id, chunk). Claims name the `rev` they saw and are serializable, as in
raw.source_tables. A lease decides only when somebody else may try; what counts is the attempt named
`done`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import SparkSession

from ingest.lake.commit import retried
from ingest.lake.ddl import CHUNKS, TABLES
from ingest.lake.sql import literal
from ingest.lake.tables import DONE, QUEUED, RUNNING


@dataclass(frozen=True)
class Chunk:
    """One row of raw.chunks.

    Bounds are block numbers of the leaf's file, the upper one exclusive or None: open.
    """

    source: str
    table_id: str
    snapshot_id: str
    chunk: int
    leaf_id: int
    lower_bound: str | None
    upper_bound: str | None
    owner: str | None = None
    lease_until: datetime | None = None
    attempt: int = 0
    state: str = QUEUED
    row_count: int | None = None
    rev: int = 1

    def claimable(self, now: datetime) -> bool:
        """Whether it may be tried: never begun, or its reader has let the lease run out."""
        lapsed = self.lease_until is not None and self.lease_until < now
        return self.state == QUEUED or (self.state == RUNNING and lapsed)


_FIELDS = tuple(Chunk.__dataclass_fields__)


class ChunkTable:
    """The table, by its rules. Chunks of several snapshots may be changed at once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, snapshot_ids: Iterable[str]) -> list[Chunk]:
        """The chunks of these snapshots, by snapshot and in order."""
        wanted = ", ".join(literal(snapshot_id) for snapshot_id in snapshot_ids)
        if not wanted:
            return []
        rows = self._spark.sql(f"SELECT {', '.join(_FIELDS)} FROM {CHUNKS} WHERE snapshot_id IN ({wanted})").collect()
        found = [_chunk(row.asDict()) for row in rows]
        return sorted(found, key=lambda chunk: (chunk.snapshot_id, chunk.chunk))

    def plan(self, chunks: Sequence[Chunk]) -> None:
        """Adds the chunks of snapshots, all at once.

        Their ids are new, so nobody else can be at them.
        """
        names = ", ".join((*_FIELDS, "updated_at"))
        rows = ", ".join(f"({', '.join(_value(chunk, name) for name in _FIELDS)}, {_now()})" for chunk in chunks)
        retried(lambda: self._spark.sql(f"INSERT INTO {CHUNKS} ({names}) VALUES {rows}"))

    def drop(self, snapshot_ids: Iterable[str]) -> None:
        """Forgets snapshots that nobody reads any more."""
        wanted = ", ".join(literal(snapshot_id) for snapshot_id in snapshot_ids)
        if wanted:
            statement = f"DELETE FROM {CHUNKS} WHERE snapshot_id IN ({wanted})"
            retried(lambda: self._spark.sql(statement))

    def claim(self, chunks: Sequence[Chunk], owner: str, lease_seconds: float) -> list[Chunk]:
        """Of `chunks` those that are `owner`'s now, as they are after it; owner.

        Unlike any other, ever.
        """
        return self._update(
            chunks,
            owner,
            f"state = '{RUNNING}', owner = {literal(owner)}, attempt = attempt + 1, "
            f"lease_until = {_lease(lease_seconds)}",
        )

    def renew(self, chunks: Sequence[Chunk], lease_seconds: float) -> list[Chunk]:
        """The lease of claimed `chunks` begins anew; gives those that are still their owner's."""
        return self._update(chunks, chunks[0].owner, f"lease_until = {_lease(lease_seconds)}")

    def finish(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> list[Chunk]:
        """Names claimed `chunks` done, with their numbers of rows; gives those that count."""
        counts = " ".join(f"WHEN {_is(chunk)} THEN {count}L" for chunk, count in zip(chunks, rows, strict=True))
        return self._update(chunks, chunks[0].owner, f"state = '{DONE}', row_count = CASE {counts} END")

    def release(self, chunks: Sequence[Chunk]) -> None:
        """Gives claimed `chunks` back, for anybody to try at once."""
        self._update(chunks, None, f"state = '{QUEUED}', owner = NULL, lease_until = NULL")

    def _update(self, chunks: Sequence[Chunk], owner: str | None, assignments: str) -> list[Chunk]:
        """Changes those of `chunks` that are still as they were seen.

        Gives those that `owner` has by it.
        """
        seen = " OR ".join(f"({_is(chunk)} AND rev = {chunk.rev})" for chunk in chunks)
        statement = f"UPDATE {CHUNKS} SET {assignments}, rev = rev + 1, updated_at = {_now()} WHERE {seen}"
        snapshots = {chunk.snapshot_id for chunk in chunks}

        def all_changed() -> bool:
            now = {(c.snapshot_id, c.chunk, c.rev) for c in self.read(snapshots)}
            return not now & {(c.snapshot_id, c.chunk, c.rev) for c in chunks}

        retried(lambda: self._spark.sql(statement), unless=all_changed)
        after = {(chunk.snapshot_id, chunk.chunk): chunk.rev + 1 for chunk in chunks}
        return [
            chunk
            for chunk in self.read(snapshots)
            if chunk.owner == owner and after.get((chunk.snapshot_id, chunk.chunk)) == chunk.rev
        ]


def _is(chunk: Chunk) -> str:
    return f"snapshot_id = {literal(chunk.snapshot_id)} AND chunk = {chunk.chunk}"


def _lease(seconds: float) -> str:
    return literal(datetime.now(timezone.utc) + timedelta(seconds=seconds))


def _value(chunk: Chunk, name: str) -> str:
    return f"CAST({literal(getattr(chunk, name))} AS {TABLES[CHUNKS].columns[name]})"


def _now() -> str:
    return literal(datetime.now(timezone.utc))


def _chunk(found: dict[str, Any]) -> Chunk:
    lease = found["lease_until"]
    # Spark's timestamps come in the process's own zone, without saying so.
    found["lease_until"] = None if lease is None else lease.astimezone(timezone.utc)
    return Chunk(**found)
