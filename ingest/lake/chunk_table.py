"""raw.snapshot_chunks: what one snapshot has to read, piece by piece, and who reads which.

One row per (snapshot_id, chunk). Claims name the `rev` they saw and are serializable, as in
raw.source_tables. A lease decides only when somebody else may try; what counts is the attempt named
`done`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from ingest.lake.iceberg_commit import retried
from ingest.lake.raw_schema import CHUNKS, TABLES
from ingest.lake.source_tables import DONE, QUEUED, RUNNING
from ingest.lake.sql_literals import literal


@dataclass(frozen=True)
class Chunk:
    """One row of raw.snapshot_chunks.

    Bounds are block numbers of the partition's file, or a document's `_id`; the upper one exclusive, None: open.
    row_keys: the rows with these keys, in place of a range. not_before: the least stamp that it may be read
    under; read_lsn: the one that it was.
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

    def claimable(self, now: datetime) -> bool:
        """Whether it may be tried: never begun, or its reader has let the lease run out."""
        lapsed = self.lease_until is not None and self.lease_until < now
        return self.state == QUEUED or (self.state == RUNNING and lapsed)


def claimed_by(chunks: Iterable[Chunk], owner: str, chunk_lease_seconds: float) -> list[Chunk]:
    """`chunks` that are not there yet as `owner`'s."""
    until = _until(chunk_lease_seconds)
    return [replace(chunk, state=RUNNING, owner=owner, attempt=1, lease_until=until) for chunk in chunks]


class Count(NamedTuple):
    """What a chunk came to: how many rows, read under which stamp."""

    rows: int
    read_lsn: int


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
        """Adds those of `chunks` that are not there, all at once."""
        names = ", ".join(_FIELDS)
        rows = ", ".join(f"({', '.join(_value(chunk, name) for name in _FIELDS)})" for chunk in chunks)
        snapshots = ", ".join(sorted({literal(chunk.snapshot_id) for chunk in chunks}))
        # Without a matched clause Spark would make this a plain append, and every racer would win.
        statement = f"""
            MERGE INTO {CHUNKS} t
            USING (SELECT {names}, {_now()} AS updated_at FROM VALUES {rows} AS v ({names})) s
            ON t.snapshot_id IN ({snapshots}) AND t.snapshot_id = s.snapshot_id AND t.chunk = s.chunk
            WHEN MATCHED AND t.rev < 0 THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *"""
        retried(lambda: self._spark.sql(statement))

    def drop(self, snapshot_ids: Iterable[str]) -> None:
        """Forgets snapshots that nobody reads any more."""
        wanted = ", ".join(literal(snapshot_id) for snapshot_id in snapshot_ids)
        if wanted:
            statement = f"DELETE FROM {CHUNKS} WHERE snapshot_id IN ({wanted})"
            retried(lambda: self._spark.sql(statement))

    def claim(self, chunks: Sequence[Chunk], owner: str, chunk_lease_seconds: float) -> list[Chunk]:
        """Of `chunks` those that are `owner`'s now, as they are after it; owner.

        Unlike any other, ever.
        """
        return self._update(
            chunks,
            owner,
            f"state = '{RUNNING}', owner = {literal(owner)}, attempt = attempt + 1, "
            f"lease_until = {literal(_until(chunk_lease_seconds))}",
        )

    def renew(self, chunks: Sequence[Chunk], chunk_lease_seconds: float) -> list[Chunk]:
        """The lease of claimed `chunks` begins anew; gives those that are still their owner's."""
        return self._update(chunks, chunks[0].owner, f"lease_until = {literal(_until(chunk_lease_seconds))}")

    def finish(self, chunks: Sequence[Chunk], counts: Sequence[Count]) -> list[Chunk]:
        """Names claimed `chunks` done; gives those that count."""
        assignments = [f"state = '{DONE}'"]
        for name, values in (("row_count", [c.rows for c in counts]), ("read_lsn", [c.read_lsn for c in counts])):
            cases = " ".join(f"WHEN {_is(chunk)} THEN {value}L" for chunk, value in zip(chunks, values, strict=True))
            assignments.append(f"{name} = CASE {cases} END")
        return self._update(chunks, chunks[0].owner, ", ".join(assignments))

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


def _until(chunk_lease_seconds: float) -> datetime:
    return datetime.now(timezone.utc) + timedelta(seconds=chunk_lease_seconds)


def _value(chunk: Chunk, name: str) -> str:
    return f"CAST({literal(getattr(chunk, name))} AS {TABLES[CHUNKS].columns[name]})"


def _now() -> str:
    return literal(datetime.now(timezone.utc))


def _chunk(found: dict[str, Any]) -> Chunk:
    lease = found["lease_until"]
    # Spark's timestamps come in the process's own zone, without saying so.
    found["lease_until"] = None if lease is None else lease.astimezone(timezone.utc)
    found["row_keys"] = None if found["row_keys"] is None else tuple(found["row_keys"])
    return Chunk(**found)
