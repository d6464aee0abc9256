"""The committer of a stream writer: a thread that commits closed batches, stores their position and acknowledges it.

Events are committed before their position is stored (rule W1), and the source is acknowledged only up to a stored
position (rule W2). Files are written in parallel, so a batch may be ready before an earlier one. It is committed at
once; the stored position is the highest one below which no batch is in flight (rule W3).
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from ingest.lake import DataFile, Lake
from ingest.lake.raw_schema import EVENTS
from ingest.positions.in_flight import InFlight
from ingest.positions.position import Position
from ingest.stream.open_batch import Batch, ClosedBatch

# Closed batches that wait while others are being committed; the next one waits in `enqueue`.
QUEUE_LENGTH = 2


def _nothing(batch: Batch) -> None:
    pass


@dataclass
class CommitHooks:
    """Called by the committer's thread around the commit of a batch's files and the storing of its position.

    An exception from a hook ends the stream writer as if the process had been killed there.
    """

    before_commit: Callable[[Batch], None] = _nothing
    after_commit: Callable[[Batch], None] = _nothing
    before_store: Callable[[Batch], None] = _nothing
    after_store: Callable[[Batch], None] = _nothing


@dataclass
class Progress:
    """What a stream writer has done since its start. position: the stored one. transactions: as read, the other numbers
    as committed.
    """

    position: Position
    events: int = 0
    commits: int = 0
    transactions: int = 0


@dataclass(frozen=True)
class _End:
    """The position after a batch, and whether the batches up to it have events past that."""

    position: Position
    has_events_past_position: bool = False

    @staticmethod
    def of_batch(batch: ClosedBatch, before: "_End") -> "_End":
        """The end of `batch`, which follows on a batch with the end `before`."""
        is_unfinished = before.has_events_past_position and before.position == batch.position
        return _End(batch.position, batch.ends_in_transaction or is_unfinished)


class BatchCommitter:
    """Commits the batches of one stream writer, whose thread calls all methods. acknowledge: called with each position
    after it is stored.

    failure: what ended the committer, None while there was no error. No batch is committed after an error; the next
    start reads the uncommitted events again.
    """

    def __init__(
        self, lake: Lake, acknowledge: Callable[[Position], None], position: Position, hooks: CommitHooks
    ) -> None:
        self.progress = Progress(position)
        self.failure: BaseException | None = None
        self._lake = lake
        self._acknowledge = acknowledge
        self._hooks = hooks
        # Batches are numbered from 1 in the order of the log.
        self._newest = self._newest_committed = 0
        self._in_flight = InFlight(0)
        self._ends = {0: _End(position)}
        self._queued: dict[int, ClosedBatch] = {}
        self._is_committing = False
        self._is_closed = False
        # Guards the above; notified of every change.
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether every queued batch is committed."""
        with self._changed:
            return not self._queued and not self._is_committing

    def enqueue(self, batch: ClosedBatch) -> bool:
        """Queues a batch, waiting while the queue is full; false if the committer has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self.failure is not None or len(self._queued) < QUEUE_LENGTH)
            if self.failure is not None:
                return False
            self._newest += 1
            self._in_flight.begin([self._newest])
            self._ends[self._newest] = _End.of_batch(batch, self._ends[self._newest - 1])
            self._queued[self._newest] = batch
        batch.call_when_written(self._notify)
        return True

    def discard_queued(self) -> None:
        """Discards the queued batches, and returns when the commit in progress has finished."""
        with self._changed:
            discarded, self._queued = list(self._queued.values()), {}
            self._changed.wait_for(lambda: self.failure is not None or not self._is_committing)
            self._in_flight = InFlight(self._newest)
            self._newest_committed = self._newest
            self._ends = {self._newest: _End(self.progress.position)}
        for batch in discarded:
            batch.discard()

    def finish(self) -> None:
        """Ends after all queued batches. Raises the error that the committer has failed with."""
        self._close()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def abort(self) -> None:
        """Ends after an error, within a minute. After an error of the stream writer, queued batches are still
        committed; after one of the committer they are discarded.
        """
        self._close()
        self._thread.join(timeout=60)
        if self.failure is not None:
            self.discard_queued()

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while batches := self._take_written():
                self._commit(batches)
                with self._changed:
                    self._is_committing = False
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the stream writer's thread raises it
            with self._changed:
                self.failure = error
                self._changed.notify_all()

    def _take_written(self) -> dict[int, ClosedBatch]:
        """Waits until queued batches are written, and takes them; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._written_numbers() or (self._is_closed and not self._queued))
            written = {number: self._queued.pop(number) for number in self._written_numbers()}
            self._is_committing = bool(written)
            self._changed.notify_all()
            return written

    def _written_numbers(self) -> list[int]:
        return [number for number, batch in self._queued.items() if batch.is_written]

    def _commit(self, batches: dict[int, ClosedBatch]) -> None:
        files = self._files_of(list(batches.values()))
        if files:
            batch = Batch(batches[max(batches)].position, files)
            self._hooks.before_commit(batch)
            self._lake.add(EVENTS, files)
            self._hooks.after_commit(batch)
            self.progress.events += batch.rows
            self.progress.commits += 1
        end, is_ahead = self._finish(batches)
        if end.position.position > self.progress.position.position:
            batch = Batch(end.position, files, is_ahead or end.has_events_past_position)
            self._hooks.before_store(batch)
            self._lake.positions.store(end.position)
            self.progress.position = end.position
            self._acknowledge(end.position)
            self._hooks.after_store(batch)
        self._lake.run_housekeeping(self.progress.position)

    @staticmethod
    def _files_of(batches: list[ClosedBatch]) -> tuple[DataFile, ...]:
        try:
            return tuple(file for batch in batches for file in batch.files())
        except BaseException:
            for batch in batches:
                with suppress(Exception):
                    batch.discard()
            raise

    def _finish(self, numbers: Iterable[int]) -> tuple["_End", bool]:
        """Marks batches as committed; the end of the last one with none in flight before it, and whether a later one is
        committed.
        """
        with self._changed:
            self._in_flight.finish(numbers)
            self._newest_committed = max(self._newest_committed, *numbers)
            finished = self._in_flight.position
            self._ends = {number: end for number, end in self._ends.items() if number >= finished}
            return self._ends[finished], self._newest_committed > finished
