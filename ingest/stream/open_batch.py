"""A batch of a stream's events: open while events are added, closed while its file is completed, then committed."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from ingest.common.records import EVENTS, EventBatch
from ingest.lake import DataFile, Folder
from ingest.lake.parquet_files import BackgroundSink
from ingest.positions.position import Position

# Events are held in memory up to this size, in bytes as Arrow, then compressed into the batch's file as one row group.
ROW_GROUP_BYTES = 16 << 20


@dataclass(frozen=True)
class Batch:
    """The files of one Iceberg commit, and the writer's position after it.

    has_events_past_position: events of an unfinished transaction, or of a later batch that was written before this one.
    """

    position: Position
    files: tuple[DataFile, ...] = ()
    has_events_past_position: bool = False

    @property
    def rows(self) -> int:
        """The number of events."""
        return sum(file.rows for file in self.files)


class ClosedBatch:
    """A batch to which no events are added; its file may still be in the process of being written.

    position: the writer's position when this batch and all before it are committed. ends_in_transaction: its last
    events belong to an unfinished transaction, so they are not below `position`.
    """

    def __init__(self, position: Position, sink: BackgroundSink | None, *, ends_in_transaction: bool) -> None:
        self.position = position
        self.ends_in_transaction = ends_in_transaction
        self._sink = sink
        self._file: Future[DataFile] | None = None if sink is None else sink.close()

    @property
    def is_written(self) -> bool:
        """Whether `files` returns or raises at once."""
        return self._file is None or self._file.done()

    def call_when_written(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once `is_written`: at once, or in another thread."""
        if self._file is None:
            callback()
        else:
            self._file.add_done_callback(lambda _: callback())

    def files(self) -> tuple[DataFile, ...]:
        """Its file, or none; waits until it is written. Raises the error of writing it."""
        return () if self._file is None else (self._file.result(),)

    def discard(self) -> None:
        """Removes the file of a batch that will not be committed."""
        if self._sink is not None:
            self._sink.discard()


class OpenBatch:
    """The events that were read after `start` and are not yet queued to be committed. Used by one thread.

    start: the position of the batch before. position: the position that this batch brings the writer to: the end of the
    last finished transaction that was added (rule W1). size: bytes as Arrow. folder: gives the folder of the batch's
    file; it is called when the first row group is written, so that a batch without events has no file. Memory holds two
    row groups at most, whatever the size of the batch or of a transaction (rule T4).
    """

    def __init__(self, start: Position, folder: Callable[[], Folder]) -> None:
        self.start = self.position = start
        self.size = 0
        self._folder = folder
        self._sink: BackgroundSink | None = None
        self._row_group: list[pa.Table] = []
        self._row_group_bytes = 0
        self._first_event_at = 0.0
        self._ends_in_transaction = False

    @property
    def is_empty(self) -> bool:
        """Whether a commit would change nothing: no event and no new position."""
        return not self.size and self.position == self.start

    @property
    def has_advanced(self) -> bool:
        """Whether its position is past that of the batch before."""
        return self.position.position > self.start.position

    def age(self) -> float:
        """Seconds since its first event was added; 0 without an event."""
        return time.monotonic() - self._first_event_at if self.size else 0.0

    def crosses(self, target: int | None) -> bool:
        """Whether the writer passes `target` with this batch."""
        return target is not None and self.position.position > target >= self.start.position

    def add(self, received: EventBatch) -> None:
        """Add events, and the position after them. Raises what the row group before could not be written for."""
        if received.position is not None:
            self.position = self.position.advanced_to(received.position, received.token)
        self._ends_in_transaction = received.in_transaction
        if received.events.num_rows:
            self._first_event_at = self._first_event_at or time.monotonic()
            size = received.events.nbytes
            self.size += size
            self._row_group.append(received.events)
            self._row_group_bytes += size
            if self._row_group_bytes >= ROW_GROUP_BYTES:
                self._write_row_group()

    def close(self) -> ClosedBatch:
        """The closed batch. Does not wait until its last row group is written."""
        self._write_row_group()
        sink, self._sink = self._sink, None
        ends_in_transaction = sink is not None and self._ends_in_transaction
        return ClosedBatch(self.position, sink, ends_in_transaction=ends_in_transaction)

    def discard(self) -> None:
        """Removes the file of a batch that will not be committed."""
        if self._sink is not None:
            self._sink.discard()
            self._sink = None

    def _write_row_group(self) -> None:
        if self._row_group:
            if self._sink is None:
                self._sink = BackgroundSink(self._folder(), EVENTS)
            self._sink.write(pa.concat_tables(self._row_group))
            self._row_group, self._row_group_bytes = [], 0
