"""How a snapshot's rows are divided into chunks."""

from dataclasses import replace

import pytest

from ingest.config.job_settings import JobSettings
from ingest.lake.source_tables import SourceTable
from ingest.snapshot.chunk_planning import KEYS_PER_CHUNK, chunk_count, key_chunks, min_read_lsn, range_chunks

MIB = 1 << 20
TABLE = SourceTable(
    "shop", "a" * 16, "public.orders", 500, "d", ("id",), columns=(), partitions=(), snapshot_id="s", snapshot_lsn=10
)


@pytest.mark.parametrize(
    ("size", "workers", "expected"),
    [
        pytest.param(0, 2, 1, id="an empty table is one chunk"),
        pytest.param(16 * MIB - 1, 2, 1, id="a small table is not divided"),
        pytest.param(16 * MIB, 2, 2, id="each worker has a chunk"),
        pytest.param(65 * MIB, 2, 4, id="all workers have the same number"),
        pytest.param(65 * MIB, 1, 3, id="one worker has all chunks"),
        pytest.param(65 * MIB, 5, 5, id="more workers than chunks"),
    ],
)
def test_each_worker_gets_the_same_number_of_chunks(size: int, workers: int, expected: int) -> None:
    settings = JobSettings.model_validate({"snapshot_chunk_bytes": 32 * MIB, "snapshot_workers": workers})
    assert chunk_count(size, settings) == expected


def test_chunks_are_numbered_in_the_order_of_their_bounds() -> None:
    first, second = range_chunks(TABLE, "s", [(500, None, "7"), (501, "7", None)])
    assert (first.chunk, first.partition_id, first.lower_bound, first.upper_bound) == (0, 500, None, "7")
    assert (second.chunk, second.partition_id, second.lower_bound, second.upper_bound) == (1, 501, "7", None)


def test_keys_are_read_by_partition_in_groups_of_a_thousand() -> None:
    rows = [(500, str(number)) for number in range(KEYS_PER_CHUNK + 1)] + [(501, "a")]
    chunks = key_chunks(TABLE, 4, 30, rows)
    assert [(chunk.chunk, chunk.partition_id, len(chunk.row_keys or ())) for chunk in chunks] == [
        (4, 500, KEYS_PER_CHUNK),
        (5, 500, 1),
        (6, 501, 1),
    ]
    keys = [(chunk.partition_id, key) for chunk in chunks for key in chunk.row_keys or ()]
    assert keys == rows
    assert {min_read_lsn(TABLE, chunk) for chunk in chunks} == {30}


def test_a_chunk_is_read_at_or_after_the_snapshot_lsn_of_its_table() -> None:
    (chunk,) = range_chunks(TABLE, "s", [(500, None, None)])
    assert min_read_lsn(TABLE, chunk) == 10
    assert min_read_lsn(replace(TABLE, snapshot_lsn=None), chunk) == 0
