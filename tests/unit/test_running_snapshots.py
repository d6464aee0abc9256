"""Which chunks are claimed together, and when a snapshot is read completely, as tables of cases (design rules S2, S8,
T5).
"""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from ingest.lake import Chunk, SourceTable
from ingest.lake.source_tables import DONE, QUEUED, RUNNING
from ingest.snapshot import running_snapshots
from ingest.snapshot.running_snapshots import RunningSnapshots, complete_table, is_read_at_snapshot_lsn, select_chunks

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
LEASED, EXPIRED = NOW + timedelta(seconds=1), NOW - timedelta(seconds=1)


def table(name: str) -> SourceTable:
    return SourceTable(
        *("shop", name, f"public.{name}", 500, "d", ("id",)),
        columns=(),
        partitions=(),
        state=RUNNING,
        snapshot_id=f"{name}-1",
        snapshot_lsn=10,
    )


def chunk(name: str, number: int, state: str = QUEUED, lease_until: datetime | None = None) -> Chunk:
    free = Chunk("shop", name, f"{name}-1", number, 500, None, None)
    return replace(free, state=state, lease_until=lease_until)


def claim_group(chunks: list[Chunk], max_bytes: int = 25, size: int = 10, whole: str = "") -> list[tuple[str, int]]:
    """Of tables a and b. size: of each chunk. whole: the table that is read at once."""
    snapshots = RunningSnapshots.from_rows([table("a"), table("b")], chunks)
    result = select_chunks(snapshots, NOW, max_bytes, lambda *_: size, lambda table: table.table_id == whole)
    return [(selected_chunk.table_id, selected_chunk.chunk) for selected_chunk in result]


FREE = [chunk(name, number) for name in "ab" for number in range(2)]


@pytest.mark.parametrize(
    ("chunks", "max_bytes", "whole", "expected"),
    [
        pytest.param([], 25, "", [], id="no chunk"),
        pytest.param(FREE, 100, "", [("a", 0), ("a", 1), ("b", 0), ("b", 1)], id="all fit"),
        pytest.param(FREE, 25, "", [("a", 0), ("a", 1)], id="as many as fit"),
        pytest.param(FREE, 5, "", [("a", 0)], id="one chunk, although it does not fit"),
        pytest.param(FREE, 5, "a", [("a", 0), ("a", 1)], id="a whole table, although it does not fit"),
        pytest.param(FREE, 25, "b", [("a", 0), ("a", 1), ("b", 0), ("b", 1)], id="a whole table is not divided"),
        pytest.param(
            [chunk("a", 0, DONE), chunk("a", 1, RUNNING, LEASED), chunk("b", 0, RUNNING, EXPIRED)],
            100,
            "",
            [("b", 0)],
            id="without done and leased chunks",
        ),
        pytest.param(
            [chunk("a", 0, RUNNING, LEASED), chunk("a", 1), chunk("b", 0)],
            100,
            "a",
            [("b", 0)],
            id="a whole table waits while another process reads a part",
        ),
        pytest.param(
            [chunk("a", 0, DONE), chunk("a", 1, RUNNING, EXPIRED)], 100, "a", [("a", 1)], id="the rest of a whole table"
        ),
    ],
)
def test_chunks_are_selected(chunks: list[Chunk], max_bytes: int, whole: str, expected: list[tuple[str, int]]) -> None:
    assert claim_group(chunks, max_bytes, whole=whole) == expected


def test_a_group_has_a_bounded_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_snapshots, "GROUP_CHUNKS", 3)
    assert len(claim_group(FREE, max_bytes=100, size=0)) == 3
    assert len(claim_group(FREE, max_bytes=100, size=0, whole="b")) == 4


def test_a_snapshot_is_read_when_all_its_chunks_are_done() -> None:
    chunks = [chunk("a", 0, DONE), chunk("a", 1, DONE), chunk("b", 0, DONE), chunk("b", 1, RUNNING, LEASED)]
    snapshots = RunningSnapshots.from_rows([table("a"), table("b")], chunks)
    assert snapshots.fully_read() == [(table("a"), chunks[:2])]


def test_chunks_of_several_positions_can_miss_rows() -> None:
    first, second = (replace(chunk("a", number, DONE), read_lsn=10) for number in range(2))
    assert is_read_at_snapshot_lsn(table("a"), [first, second])
    assert not is_read_at_snapshot_lsn(table("a"), [first, replace(second, read_lsn=11)])


def test_a_complete_table_has_the_rows_of_its_chunks() -> None:
    chunks = [replace(chunk("a", number, DONE), row_count=rows) for number, rows in enumerate((3, 4))]
    row = complete_table(replace(table("a"), note="asked for"), chunks, 30)
    assert (row.state, row.row_count, row.complete_lsn, row.note, row.rev) == (DONE, 7, 30, None, 2)
