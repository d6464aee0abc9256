"""How the rows of a snapshot are shared out in chunks: how many, of which bounds or keys, and from which moment on each
may be read. Pure functions.
"""

from collections.abc import Iterable

from ingest.config.job_settings import JobSettings
from ingest.lake import Chunk, SourceTable
from ingest.snapshot.snapshot_source import Bounds

# From so many bytes for each worker a table is shared out, all workers having as many chunks of it.
WORTH_SHARING_BYTES = 8 << 20
# Rows that one chunk asks for by their keys.
KEYS_PER_CHUNK = 1000


def earliest(table: SourceTable, chunk: Chunk) -> int:
    """The moment before which a chunk must not be read: records before the stamp are passed over, whoever reads it."""
    return max(table.snapshot_lsn or 0, chunk.not_before or 0)


def chunk_count(size: int, settings: JobSettings) -> int:
    """In how many chunks to read `size` bytes; even ones, so that no worker waits for another."""
    count = max(1, -(-size // settings.snapshot_chunk_bytes))
    workers = settings.snapshot_workers
    is_shared = size >= workers * WORTH_SHARING_BYTES
    return -(-count // workers) * workers if is_shared else count


def chunks_of(table: SourceTable, snapshot_id: str, bounds: Iterable[Bounds]) -> list[Chunk]:
    """The chunks of a snapshot, to be read by their bounds."""
    return [
        Chunk(
            source=table.source,
            table_id=table.table_id,
            snapshot_id=snapshot_id,
            chunk=number,
            partition_id=partition_id,
            lower_bound=lower,
            upper_bound=upper,
        )
        for number, (partition_id, lower, upper) in enumerate(bounds)
    ]


def key_chunks(table: SourceTable, number: int, not_before: int, rows: Iterable[tuple[int, str]]) -> list[Chunk]:
    """Chunks, from `number` on, of rows given as (partition, row_key), to be read at a position or later."""
    by_leaf: dict[int, list[str]] = {}
    for partition_id, row_key in rows:
        by_leaf.setdefault(partition_id, []).append(row_key)
    parts = [
        (partition_id, tuple(keys[start : start + KEYS_PER_CHUNK]))
        for partition_id, keys in by_leaf.items()
        for start in range(0, len(keys), KEYS_PER_CHUNK)
    ]
    return [
        Chunk(
            source=table.source,
            table_id=table.table_id,
            snapshot_id=str(table.snapshot_id),
            chunk=number + place,
            partition_id=partition_id,
            lower_bound=None,
            upper_bound=None,
            row_keys=keys,
            not_before=not_before,
        )
        for place, (partition_id, keys) in enumerate(parts)
    ]
