"""Chunks as tasks of Spark's executors."""

import json

from ingest.snapshot.executor_reads import balance_chunks
from ingest.sources.postgres.snapshot.table_chunk_reader import ChunkTask, unpack


def task(chunk: int) -> ChunkTask:
    return ChunkTask(
        source="shop",
        table_name="public.o\"d'd.ä",
        table_id="t",
        snapshot_id="s",
        snapshot_lsn=5,
        chunk=chunk,
        attempt=1,
        relation_id=6,
        partition_id=7,
        columns={"b": 2, "a": 3},
        key=None if chunk % 2 else ("a", "b"),
        row_filter="(id > 5)",
        lower=0,
        upper=None,
        row_keys=('["ä\\"1"]',) if chunk % 2 else None,
        snapshot="0001-1",
        read_lsn=6,
        storage={7: 8},
        folder="s3://lake/x",
        largest_row=None,
    )


def test_a_task_is_received_unchanged() -> None:
    shares = [[task(0), task(1)], [task(2)]]
    sent = json.dumps([[chunk_task.pack() for chunk_task in share] for share in shares])
    assert [[unpack(t) for t in share] for share in json.loads(sent)] == shares


def test_large_chunks_are_spread_and_small_ones_fill_the_rest() -> None:
    weighed = [(1, task(0)), (100, task(1)), (60, task(2)), (50, task(3))]
    shares = balance_chunks(weighed, 2)
    assert [[t.chunk for t in share] for share in shares] == [[1, 0], [2, 3]]


def test_there_are_no_empty_shares() -> None:
    assert balance_chunks([], 4) == []
    assert len(balance_chunks([(0, task(0))], 4)) == 1
