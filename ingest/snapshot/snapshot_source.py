"""The interface between the snapshotter and a source: catalog sync, planning, and reading chunks.

`PostgresTables` and `MongoCollections` implement it. The snapshotter calls it and knows no database.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ingest.common.errors import Unavailable
from ingest.lake import Chunk, DataFile, Folder, SourceTable

# Of a chunk: partition id, lower bound (inclusive), upper bound (exclusive); None: open.
Bounds = tuple[int, str | None, str | None]


@dataclass(frozen=True)
class SnapshotPlan:
    """How to read a queued table: its shape as the snapshot sees it, the snapshot LSN, and the bounds of its chunks."""

    table: SourceTable
    snapshot_lsn: int
    chunks: tuple[Bounds, ...]


@dataclass(frozen=True)
class ChunkOutcome:
    """The result of reading a claimed chunk: the number of its rows, the LSN that they were read at, and their file if
    there are any; or a problem.

    must_restart: the table is no longer the one whose snapshot was begun. is_unreadable: the table can't be read,
    and a retry at once would not help. If there is a problem and neither is set, the chunk is read again.
    """

    chunk: Chunk
    rows: int = 0
    read_lsn: int = 0
    file: DataFile | None = None
    problem: str = ""
    must_restart: bool = False
    is_unreadable: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether another try at once is not needed or would not help."""
        return not self.problem or self.must_restart or self.is_unreadable


class SourceUnavailable(Unavailable):
    """The source can't be reached at present. The snapshotter retries, except at its start."""


class CatalogUnavailable(SourceUnavailable):
    """The source can be reached, but its catalog can't be read at present. The snapshotter retries."""


class SnapshotSource(Protocol):
    """The tables of one source. One thread calls all methods but `cancel`; each may raise `SourceUnavailable`.

    has_partial_updates: whether an update in the log can lack a value of its row.
    """

    has_partial_updates: ClassVar[bool]

    def sync_catalog(self) -> None:
        """Bring raw.source_tables up to date with the source's catalog."""

    def plan(self, queued: Sequence[SourceTable], *, patient: bool = True) -> list[SnapshotPlan]:
        """Plans for queued tables, all with one snapshot LSN; tables that can't be read now have none.

        patient: whether it may wait until open transactions of the source end.
        """

    def ineligibility_reason(self, table: SourceTable) -> str:
        """Why a table can't be read at present, as of the last catalog sync; empty if it can."""

    def estimated_bytes(self, table: SourceTable, chunk: Chunk) -> int:
        """About how many bytes a chunk has."""

    def requires_single_snapshot(self, table: SourceTable) -> bool:
        """Whether all chunks of a table have to be read at one LSN."""

    def read(self, chunks: Sequence[tuple[SourceTable, Chunk]], folder: Folder) -> Iterable[ChunkOutcome]:
        """Read claimed chunks into files of `folder`."""

    def emit_marker(self) -> int:
        """Write a marker into the source's log; its position is past everything that was committed before."""

    def cancel(self) -> None:
        """End the wait in `plan` or `read`. Called by any thread."""

    def release_resources(self) -> None:
        """Release what is held at the source, such as an exported snapshot, while nothing is to be read."""

    def close(self) -> None:
        """Release everything and close the connections."""
