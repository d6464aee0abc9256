"""Fakes for tests of the stream writer: received events, closed batches, a lake and a feed that record their calls."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
from typing_extensions import Self

from ingest.common.records import EVENTS, EventBatch
from ingest.lake import DataFile, Folder
from ingest.positions.position import Position
from ingest.stream.open_batch import ClosedBatch

START = Position("shop", 1, "slot", "1", 1, 10, 10)
MEBIBYTE = 1 << 20


class Recorder:
    """A lake and a feed that record their calls in `calls`, in order. The feed returns `received`, then nothing."""

    def __init__(self, folder: Path, received: Sequence[EventBatch] = ()) -> None:
        self.calls: list[tuple[str, int]] = []
        self._folder = folder
        self._received = list(received)

    def read(self, _: float) -> EventBatch | None:
        return self._received.pop(0) if self._received else None

    def acknowledge(self, position: Position) -> None:
        self.calls.append(("acknowledge", position.position))

    def prepare_commit(self) -> bool:
        return True

    def file_folder(self, _: str) -> Folder:
        return Folder(str(self._folder))

    def add(self, _: str, files: Sequence[DataFile]) -> None:
        self.calls.append(("commit", sum(file.rows for file in files)))

    @property
    def positions(self) -> Self:
        return self

    def store(self, position: Position) -> None:
        self.calls.append(("store", position.position))

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def events(rows: int, position: int | None, *, in_transaction: bool = False, size: int = 10, **more: Any) -> EventBatch:
    """Received events. size: the bytes of each event."""
    row = {**dict.fromkeys(EVENTS.names), "source": "shop", "row_key": "x" * size}
    return EventBatch(pa.Table.from_pylist([row] * rows, EVENTS), position, in_transaction=in_transaction, **more)


class HeldFile:
    """The file of a closed batch; the test decides when it is written."""

    def __init__(self, position: int, rows: int) -> None:
        self._file = DataFile(f"{position}.parquet", rows, rows)
        self._future: Future[DataFile] = Future()
        self.is_discarded = False

    def write(self) -> None:
        self._future.set_result(self._file)

    def fail(self) -> None:
        self._future.set_exception(OSError("no space left on device"))

    def close(self) -> "Future[DataFile]":
        return self._future

    def discard(self) -> None:
        self.is_discarded = True


def held_batch(rows: int, position: int) -> tuple[ClosedBatch, HeldFile]:
    """A closed batch with one unwritten file, and the file."""
    file = HeldFile(position, rows)
    return ClosedBatch(START.advanced_to(position), file, ends_in_transaction=False), file  # type: ignore[arg-type]


def batch(rows: int, position: int, *, ends_in_transaction: bool = False) -> ClosedBatch:
    """A closed batch with one written file, or without files."""
    if not rows:
        return ClosedBatch(START.advanced_to(position), None, ends_in_transaction=False)
    closed, file = held_batch(rows, position)
    file.write()
    closed.ends_in_transaction = ends_in_transaction
    return closed
