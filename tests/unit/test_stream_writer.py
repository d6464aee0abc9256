"""The order in which a stream writer lands, stores and acknowledges; how large a landing gets (rules T4, W1, W2)."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.common.records import EVENTS, EventBatch
from ingest.config.job_settings import JobSettings
from ingest.lake import DataFile, Folder
from ingest.positions.position import Position
from ingest.stream.stream_writer import StreamWriter

START = Position("shop", 1, "slot", "1", 1, 10, 10)
MEBIBYTE = 1 << 20


class Recorder:
    """A lake and a feed that note what they are told, in its order. The feed gives some batches, then nothing."""

    def __init__(self, folder: Path, batches: Sequence[EventBatch]) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._folder = folder
        self._batches = list(batches)
        self._is_taken = threading.Event()

    def read(self, _: float) -> EventBatch | None:
        return self._batches.pop(0) if self._batches else None

    def acknowledge(self, position: Position) -> None:
        self.told.append(("acknowledged", position.position))

    def before_landing(self) -> bool:
        return True

    def file_folder(self, _: str) -> Folder:
        return Folder(str(self._folder))

    def add(self, _: str, files: Sequence[DataFile]) -> None:
        self.told += [("landed", file.rows) for file in files]

    def store(self, position: Position) -> None:
        self.told.append(("stored", position.position))

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def batch(rows: int, position: int, *, is_open: bool = False, size: int = 10) -> EventBatch:
    empty: dict[str, Any] = dict.fromkeys(EVENTS.names)
    row = {**empty, "source": "shop", "row_key": "x" * size}
    return EventBatch(pa.Table.from_pylist([row] * rows, EVENTS), position, in_transaction=is_open)


def streamed(folder: Path, batches: Sequence[EventBatch], **settings: Any) -> list[tuple[Any, ...]]:
    recorder: Any = Recorder(folder, batches)
    StreamWriter(recorder, recorder, START, JobSettings(**settings)).run(until=batches[-1].position - 1)  # type: ignore[operator]
    told: list[tuple[Any, ...]] = recorder.told
    return told


def test_events_are_landed_then_their_position_is_stored_then_acknowledged(tmp_path: Path) -> None:
    told = streamed(tmp_path, [batch(3, 20), batch(2, 30)], commit_interval_seconds=0.01)
    assert sum(each[1] for each in told if each[0] == "landed") == 5
    landed = stored = 0
    for what, number in told:
        if what == "landed":
            landed += number
        elif what == "stored":
            assert landed >= {20: 3, 30: 5}[number]
            stored = number
        else:
            assert number <= stored
    assert (stored, told[-1]) == (30, ("acknowledged", 30))


@pytest.mark.timeout(60)
def test_a_transaction_lands_in_parts_of_a_bounded_size(tmp_path: Path) -> None:
    """No part waits for the time of a landing, nor for the end of the transaction."""
    parts = [batch(1, 10, is_open=True, size=MEBIBYTE // 2) for _ in range(8)]
    told = streamed(tmp_path, [*parts, batch(1, 40)], commit_max_bytes=MEBIBYTE, commit_interval_seconds=3600)
    assert [number for what, number in told if what == "stored"] == [40]
    assert [number for what, number in told if what == "landed"] == [2, 2, 2, 2, 1]
