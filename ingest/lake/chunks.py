"""raw.chunks: what one snapshot has to read, piece by piece, and who reads which.

One row per (snapshot_id, chunk). Claims name the `rev` they saw and are serializable, as in
raw.source_tables. A lease decides only when somebody else may try; what counts is the attempt named `done`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import SparkSession

from ingest.lake.commit import lost_race, retried
from ingest.lake.ddl import CHUNKS
from ingest.lake.sql import literal
from ingest.lake.tables import DONE, QUEUED, RUNNING


@dataclass(frozen=True)
class Chunk:
    """One row of raw.chunks. Bounds are block numbers of the leaf's file, the upper one exclusive or None: open."""

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
_KINDS = {
    "chunk": "INT",
    "attempt": "INT",
    "leaf_id": "BIGINT",
    "row_count": "BIGINT",
    "rev": "BIGINT",
    "lease_until": "TIMESTAMP",
}


class ChunkTable:
    """The table, by its rules."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, snapshot_id: str) -> list[Chunk]:
        """The chunks of a snapshot, in order."""
        rows = self._spark.sql(
            f"SELECT {', '.join(_FIELDS)} FROM {CHUNKS} WHERE snapshot_id = {literal(snapshot_id)}"
        ).collect()
        found = [_chunk(row.asDict()) for row in rows]
        return sorted(found, key=lambda chunk: chunk.chunk)

    def plan(self, chunks: Sequence[Chunk]) -> None:
        """Adds the chunks of a snapshot, all at once. Its id is new, so that nobody else can be at it."""
        rows = ", ".join(
            f"({', '.join(_value(chunk, name) for name in _FIELDS)}, {_now()})" for chunk in chunks
        )
        names = ", ".join((*_FIELDS, "updated_at"))
        retried(lambda: self._spark.sql(f"INSERT INTO {CHUNKS} ({names}) VALUES {rows}"))

    def drop(self, snapshot_id: str) -> None:
        """Forgets a snapshot that nobody has begun."""
        where = f"snapshot_id = {literal(snapshot_id)}"
        retried(lambda: self._spark.sql(f"DELETE FROM {CHUNKS} WHERE {where}"))

    def claim(self, chunks: Sequence[Chunk], owner: str, lease_seconds: float) -> list[Chunk]:
        """Of `chunks` those that are `owner`'s now, as they are after it; owner: unlike any other, ever."""
        lease = literal(datetime.now(timezone.utc) + timedelta(seconds=lease_seconds))
        self._update(
            chunks,
            f"state = '{RUNNING}', owner = {literal(owner)}, lease_until = {lease}, "
            "attempt = attempt + 1",
        )
        return self._owned(chunks, owner)

    def renew(self, chunks: Sequence[Chunk], owner: str, lease_seconds: float) -> list[Chunk]:
        """The lease of `owner`'s `chunks` begins anew; gives those that are still his."""
        lease = literal(datetime.now(timezone.utc) + timedelta(seconds=lease_seconds))
        self._update(chunks, f"lease_until = {lease}")
        return self._owned(chunks, owner)

    def finish(self, chunks: Sequence[Chunk], rows: Mapping[int, int]) -> list[Chunk]:
        """Names claimed `chunks` done with their numbers of rows (by chunk); gives those that counted."""
        counts = " ".join(f"WHEN {chunk.chunk} THEN {rows[chunk.chunk]}L" for chunk in chunks)
        self._update(chunks, f"state = '{DONE}', row_count = CASE chunk {counts} END")
        return [
            chunk
            for chunk in self._owned(chunks, chunks[0].owner or "")
            if chunk.state == DONE and chunk.row_count == rows[chunk.chunk]
        ]

    def release(self, chunks: Sequence[Chunk]) -> None:
        """Gives claimed `chunks` back for somebody else to try at once."""
        self._update(chunks, f"state = '{QUEUED}', lease_until = NULL")

    def _update(self, chunks: Sequence[Chunk], assignments: str) -> None:
        snapshot = literal(chunks[0].snapshot_id)
        seen = " OR ".join(f"(chunk = {chunk.chunk} AND rev = {chunk.rev})" for chunk in chunks)
        statement = (
            f"UPDATE {CHUNKS} SET {assignments}, rev = rev + 1, updated_at = {_now()} "
            f"WHERE snapshot_id = {snapshot} AND ({seen})"
        )

        def update() -> None:
            try:
                self._spark.sql(statement)
            except Exception as error:
                if not lost_race(error) or self._any_as_seen(chunks):
                    raise

        retried(update)

    def _any_as_seen(self, chunks: Sequence[Chunk]) -> bool:
        seen = {(chunk.chunk, chunk.rev) for chunk in chunks}
        return any((now.chunk, now.rev) in seen for now in self.read(chunks[0].snapshot_id))

    def _owned(self, chunks: Sequence[Chunk], owner: str) -> list[Chunk]:
        """Of `chunks` those that are `owner`'s by the very update just made."""
        seen = {chunk.chunk: chunk.rev + 1 for chunk in chunks}
        return [
            now
            for now in self.read(chunks[0].snapshot_id)
            if now.owner == owner and seen.get(now.chunk) == now.rev
        ]


def _value(chunk: Chunk, name: str) -> str:
    return f"CAST({literal(getattr(chunk, name))} AS {_KINDS.get(name, 'STRING')})"


def _now() -> str:
    return literal(datetime.now(timezone.utc))


def _chunk(found: dict[str, Any]) -> Chunk:
    lease = found["lease_until"]
    # Spark's timestamps come in the process's own zone, without saying so.
    found["lease_until"] = None if lease is None else lease.astimezone(timezone.utc)
    return Chunk(**found)
