"""A snapshot chunk on a Spark executor: the task that is sent, the result that comes back, and the rows.

A source has a module with `read_chunk(secret, task, connect_timeout_seconds)`, and makes the tasks, as dictionaries.
This module imports little, because every Python worker of Spark imports it again.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from ingest.common.records import SNAPSHOT_ROWS

# Why a chunk was not read: its table is no longer the registered one; a permission is missing; another session locks
# the table; the exported snapshot no longer exists; the source can't be reached; anything else.
CHANGED, FORBIDDEN, LOCKED, NO_SNAPSHOT, UNREACHABLE, FAILED = (
    "changed",
    "forbidden",
    "locked",
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
    """The result of reading a chunk: a file (path None without rows), its rows, its size in bytes and the LSN of
    the read; or a problem, one of those above, and the source's message.
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
    """Reads the tasks of one executor in order; yields the result of each as a row of `RESULTS` at once."""
    read_chunk = importlib.import_module(module).read_chunk
    for task in share:
        yield pa.RecordBatch.from_pylist([asdict(read_chunk(secret, task, connect_timeout_seconds))], RESULTS)


class SnapshotRows:
    """Makes rows of `raw.snapshot_rows` from a chunk's decoded rows.

    The columns that have one value for all rows, which is in `task`, are built once, for the largest table.
    """

    def __init__(self, task: Mapping[str, Any], now: datetime) -> None:
        values = {**task, "ingested_at": now}
        self._scalars = {
            name: pa.scalar(values[name], SNAPSHOT_ROWS.field(name).type)
            for name in SNAPSHOT_ROWS.names
            if name in values and name != "columns"
        }
        self._repeated_columns: dict[str, pa.Array] = {}
        self._max_rows = -1

    def table(self, row_key: pa.Array, columns: pa.Array) -> pa.Table:
        """The rows with these keys and columns."""
        rows = len(row_key)
        if rows > self._max_rows:
            self._max_rows = rows
            self._repeated_columns = {name: pa.repeat(value, rows) for name, value in self._scalars.items()}
        arrays = {name: array.slice(0, rows) for name, array in self._repeated_columns.items()}
        arrays |= {"row_key": row_key, "columns": columns}
        return pa.Table.from_arrays([arrays[name] for name in SNAPSHOT_ROWS.names], schema=SNAPSHOT_ROWS)
