"""Planning: a table's rows as chunks, by ranges or by keys, and the position from which each may be read. Pure."""

import uuid
from collections.abc import Iterable

from ingest.config.job_settings import JobSettings
from ingest.lake import Chunk, SourceTable
from ingest.lake.source_tables import RUNNING
from ingest.snapshot.snapshot_source import Bounds, SnapshotPlan

# From this many bytes for each worker a table is divided so that all workers have the same number of chunks.
WORTH_SHARING_BYTES = 8 << 20
# Rows that one chunk reads by their keys.
KEYS_PER_CHUNK = 1000


def min_read_lsn(table: SourceTable, chunk: Chunk) -> int:
    """The lowest LSN at which a chunk may be read: no event before the snapshot LSN is applied to it (rule S2)."""
    return max(table.snapshot_lsn or 0, chunk.not_before or 0)


def chunk_count(size: int, settings: JobSettings) -> int:
    """The number of chunks for `size` bytes; the same for each worker, so that none waits for another."""
    count = max(1, -(-size // settings.snapshot_chunk_bytes))
    workers = settings.snapshot_workers
    is_shared = size >= workers * WORTH_SHARING_BYTES
    return -(-count // workers) * workers if is_shared else count


def begin_snapshot(table: SourceTable, plan: SnapshotPlan) -> tuple[SourceTable, list[Chunk]]:
    """A new snapshot of a queued table, under an id of its own: the table's row, running, and the chunks."""
    snapshot_id = f"{table.table_id}-{uuid.uuid4().hex[:12]}"
    row = table.with_changes(
        state=RUNNING,
        snapshot_id=snapshot_id,
        snapshot_lsn=plan.snapshot_lsn,
        columns=plan.table.columns,
        partitions=plan.table.partitions,
        attributes=plan.table.attributes,
        published_id=plan.table.published_id,
        dropped=None,
    )
    return row, range_chunks(table, snapshot_id, plan.chunks)


def range_chunks(table: SourceTable, snapshot_id: str, bounds: Iterable[Bounds]) -> list[Chunk]:
    """The chunks of a snapshot by their bounds, numbered from 0."""
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


def key_chunks(
    table: SourceTable, first_chunk: int, not_before: int, keyed_rows: Iterable[tuple[int, str]]
) -> list[Chunk]:
    """Chunks, numbered from `first_chunk`, of rows given as (partition_id, row_key), to be read at the LSN `not_before`
    or later.
    """
    keys_of_partition: dict[int, list[str]] = {}
    for partition_id, row_key in keyed_rows:
        keys_of_partition.setdefault(partition_id, []).append(row_key)
    key_groups = [
        (partition_id, tuple(keys[start : start + KEYS_PER_CHUNK]))
        for partition_id, keys in keys_of_partition.items()
        for start in range(0, len(keys), KEYS_PER_CHUNK)
    ]
    return [
        Chunk(
            source=table.source,
            table_id=table.table_id,
            snapshot_id=str(table.snapshot_id),
            chunk=number,
            partition_id=partition_id,
            lower_bound=None,
            upper_bound=None,
            row_keys=keys,
            not_before=not_before,
        )
        for number, (partition_id, keys) in enumerate(key_groups, first_chunk)
    ]
