"""The running snapshots of a source as values: which chunks to claim next, and which snapshots are read. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ingest.lake import Chunk, SourceTable
from ingest.lake.source_tables import DONE, RUNNING

# The maximum number of chunks of a group, so that a SQL statement about them keeps a readable size.
GROUP_CHUNKS = 200


@dataclass(frozen=True)
class RunningSnapshots:
    """Tables by snapshot_id, and the chunks of each snapshot in order."""

    tables: Mapping[str, SourceTable]
    chunks: Mapping[str, list[Chunk]]

    @classmethod
    def from_rows(cls, tables: Iterable[SourceTable], chunks: Iterable[Chunk]) -> "RunningSnapshots":
        """These tables with their chunks."""
        tables_by_id = {str(table.snapshot_id): table for table in tables}
        chunks_by_id: dict[str, list[Chunk]] = {snapshot_id: [] for snapshot_id in tables_by_id}
        for chunk in chunks:
            chunks_by_id[chunk.snapshot_id].append(chunk)
        return cls(tables_by_id, chunks_by_id)

    def pair(self, chunks: Iterable[Chunk]) -> list[tuple[SourceTable, Chunk]]:
        """Each chunk with its table."""
        return [(self.tables[chunk.snapshot_id], chunk) for chunk in chunks]

    def fully_read(self) -> list[tuple[SourceTable, list[Chunk]]]:
        """The tables whose chunks are all done, with the chunks."""
        return [
            (table, self.chunks[snapshot_id])
            for snapshot_id, table in self.tables.items()
            if all(chunk.state == DONE for chunk in self.chunks[snapshot_id])
        ]


def select_chunks(
    snapshots: RunningSnapshots,
    now: datetime,
    max_bytes: int,
    estimated_bytes: Callable[[SourceTable, Chunk], int],
    is_read_whole: Callable[[SourceTable], bool],
) -> list[Chunk]:
    """The chunks to claim together: free ones, in order, up to `max_bytes` and `GROUP_CHUNKS`, but at least one.

    is_read_whole: whether a table's chunks are all claimed at once, without a limit. Such a table waits while another
    process reads a part of it.
    """
    selected_chunks: list[Chunk] = []
    size = 0
    for snapshot_id, table in snapshots.tables.items():
        free_chunks = [chunk for chunk in snapshots.chunks[snapshot_id] if chunk.is_claimable(now)]
        is_whole = is_read_whole(table)
        if is_whole and any(
            chunk.state == RUNNING and chunk not in free_chunks for chunk in snapshots.chunks[snapshot_id]
        ):
            continue
        for chunk in free_chunks:
            chunk_size = estimated_bytes(table, chunk)
            if (
                not is_whole
                and selected_chunks
                and (size + chunk_size > max_bytes or len(selected_chunks) >= GROUP_CHUNKS)
            ):
                break
            selected_chunks.append(chunk)
            size += chunk_size
    return selected_chunks


def is_read_at_snapshot_lsn(table: SourceTable, chunks: Iterable[Chunk]) -> bool:
    """Whether all chunks were read at the table's snapshot LSN, so that no row can have moved between two of them."""
    return all(chunk.read_lsn in (None, table.snapshot_lsn) for chunk in chunks)


def complete_table(table: SourceTable, chunks: Iterable[Chunk], complete_lsn: int) -> SourceTable:
    """The row of a table whose snapshot is complete for a reader of the log up to `complete_lsn`."""
    rows = sum(chunk.row_count or 0 for chunk in chunks)
    return table.with_changes(state=DONE, complete_lsn=complete_lsn, row_count=rows, note=None)
