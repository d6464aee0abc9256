"""The content of an open batch: events in row groups of a bounded size, and a position (design rules T4, W1)."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ingest.common.records import EventBatch
from ingest.lake import Folder
from ingest.stream import open_batch
from ingest.stream.open_batch import OpenBatch
from tests.unit.stream_parts import MEBIBYTE, START, events


def new_batch(folder: Path) -> OpenBatch:
    return OpenBatch(START, lambda: Folder(str(folder)))


def test_a_new_batch_is_empty_and_has_no_file(tmp_path: Path) -> None:
    batch = new_batch(tmp_path / "data")
    assert (batch.is_empty, batch.has_advanced, batch.size, batch.age()) == (True, False, 0, 0.0)
    batch.add(events(0, 20))
    assert (batch.is_empty, batch.has_advanced, batch.size, batch.age()) == (False, True, 0, 0.0)
    closed = batch.close()
    assert (closed.position.position, closed.files(), closed.is_written) == (20, (), True)
    assert not (tmp_path / "data").exists()


def test_a_position_moves_only_with_finished_transactions(tmp_path: Path) -> None:
    batch = new_batch(tmp_path)
    for received, position in (
        (events(1, None, in_transaction=True), 10),
        (events(1, 20, in_transaction=True), 20),
        (events(1, 15), 20),
    ):
        batch.add(received)
        assert batch.position.position == position


def test_a_target_is_crossed_by_the_batch_that_passes_it(tmp_path: Path) -> None:
    batch = new_batch(tmp_path)
    batch.add(events(1, 20))
    assert [batch.crosses(target) for target in (None, 9, 10, 19, 20)] == [False, False, True, True, False]


def test_events_are_written_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_batch, "ROW_GROUP_BYTES", MEBIBYTE)
    batch = new_batch(tmp_path)
    for _ in range(5):
        batch.add(events(1, None, in_transaction=True, size=MEBIBYTE // 2))
    assert batch.size > 2 * MEBIBYTE
    assert batch.age() > 0
    closed = batch.close()
    (file,) = closed.files()
    metadata = pq.read_metadata(file.path)
    assert (file.rows, closed.ends_in_transaction) == (5, True)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2, 2, 1]


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ([events(1, 20)], False),
        ([events(1, 20), events(1, 20, in_transaction=True)], True),
        ([events(1, 20, in_transaction=True), events(0, 30)], False),
        # The batch has no events of the open transaction.
        ([events(0, 20, in_transaction=True)], False),
    ],
)
def test_a_batch_knows_whether_it_ends_in_a_transaction(
    tmp_path: Path, received: list[EventBatch], expected: bool
) -> None:
    batch = new_batch(tmp_path)
    for received_events in received:
        batch.add(received_events)
    assert batch.close().ends_in_transaction is expected


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_discarded_batch_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool) -> None:
    monkeypatch.setattr(open_batch, "ROW_GROUP_BYTES", 1)
    batch = new_batch(tmp_path)
    batch.add(events(1, 20))
    assert list(tmp_path.iterdir())
    (batch.close() if is_closed else batch).discard()
    assert not list(tmp_path.iterdir())
