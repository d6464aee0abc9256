"""A chunk of a snapshot as an executor knows it: the task, how it went, and the rows that come of it.

A source brings a module with `read_chunk(secret, task, connect_timeout_seconds)`, and tasks for it, as dictionaries.
Little is imported here: every Python worker of Spark's does it anew.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from ingest.common.records import SNAPSHOT_ROWS

# Why a chunk was not read: its table is no longer the registered one; it may not be read; the snapshot that it was to
# be read in is gone; the source can't be reached; anything else.
CHANGED, FORBIDDEN, NO_SNAPSHOT, UNREACHABLE, FAILED = (
    "changed",
    "forbidden",
    "no snapshot",
    "unreachable",
    "failed",
)
Task = dict[str, Any]


# `ChunkResult`s as rows.
RESULTS = pa.schema(
    [
        ("snapshot_id", pa.string()),
        ("chunk", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("read_lsn", pa.int64()),
        ("problem", pa.string()),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True)
class ChunkResult:
    """How it went.

    A file (path None if there were no rows), or a problem and what the source said.
    """

    snapshot_id: str
    chunk: int
    path: str | None = None
    rows: int = 0
    size: int = 0
    read_lsn: int = 0
    problem: str | None = None
    detail: str | None = None


def read_share(
    module: str, secret: str, share: Sequence[Task], connect_timeout_seconds: float
) -> Iterator[pa.RecordBatch]:
    """Read tasks one after the other; gives each one's result, a row of `RESULTS`, when it is there."""
    read_chunk = importlib.import_module(module).read_chunk
    for task in share:
        yield pa.RecordBatch.from_pylist([asdict(read_chunk(secret, task, connect_timeout_seconds))], RESULTS)


class SnapshotRows:
    """Makes `raw.snapshot_rows` of a chunk's decoded rows, batch by batch.

    What is the same in all rows, as `task` has it, is laid out once, for the largest batch.
    """

    def __init__(self, task: Mapping[str, Any], now: datetime) -> None:
        same = {**task, "ingested_at": now}
        self._same = {
            name: pa.scalar(same[name], SNAPSHOT_ROWS.field(name).type)
            for name in SNAPSHOT_ROWS.names
            if name in same and name != "columns"
        }
        self._repeated: dict[str, pa.Array] = {}
        self._longest = -1

    def table(self, row_key: pa.Array, columns: pa.Array) -> pa.Table:
        """A batch."""
        rows = len(row_key)
        if rows > self._longest:
            self._longest = rows
            self._repeated = {name: pa.repeat(value, rows) for name, value in self._same.items()}
        arrays = {name: each.slice(0, rows) for name, each in self._repeated.items()}
        arrays |= {"row_key": row_key, "columns": columns}
        return pa.Table.from_arrays([arrays[name] for name in SNAPSHOT_ROWS.names], schema=SNAPSHOT_ROWS)
