"""The committer of a stream writer: a thread that commits closed batches, stores their position and acknowledges it.

The order is the guarantee. Events are committed before their position is stored (rule W1), and the source is
acknowledged only up to a stored position (rule W2). Batches are committed in the order in which they were queued, so
nothing below a stored position is in flight (rule W3).
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from queue import Empty, Full, Queue

from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS
from ingest.positions.position import Position
from ingest.stream.open_batch import Batch

# Closed batches that wait while another one is being committed; the next one waits in `enqueue`.
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


class BatchCommitter:
    """Commits the batches of one stream writer, whose thread calls all methods. acknowledge: called with each position
    after it is stored.

    failure: what ended the committer, None while there was no error. No batch is committed after an error; the next
    start reads what was not committed again.
    """

    def __init__(
        self, lake: Lake, acknowledge: Callable[[Position], None], position: Position, hooks: CommitHooks
    ) -> None:
        self.progress = Progress(position)
        self.failure: BaseException | None = None
        self._lake = lake
        self._acknowledge = acknowledge
        self._hooks = hooks
        self._queue: Queue[Batch | None] = Queue(maxsize=QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether every batch that was queued is committed."""
        return not self._queue.unfinished_tasks

    def enqueue(self, batch: Batch) -> bool:
        """Queue a batch, waiting while the queue is full; false if the committer has failed."""
        return self._put(batch)

    def discard_queued(self) -> None:
        """Drop the batches that wait, and return when the one that is being committed is finished."""
        with suppress(Empty):
            while True:
                self._queue.get_nowait()
                self._queue.task_done()
        while not self.is_idle and self.failure is None:
            time.sleep(0.05)

    def finish(self) -> None:
        """End after all that is queued. Raises what the committer has failed with."""
        self._put(None)
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def abort(self) -> None:
        """End after an error of the stream writer: what is queued is still committed. Waits a minute at most."""
        while self._thread.is_alive():
            with suppress(Full):
                self._queue.put(None, timeout=0.2)
                break
        self._thread.join(timeout=60)

    def _put(self, batch: Batch | None) -> bool:
        while self.failure is None:
            with suppress(Full):
                self._queue.put(batch, timeout=0.2)
                return True
        return False

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last and (first := self._queue.get()) is not None:
                following, is_last = self._take_queued()
                batches = [first, *following]
                self._commit(reduce(merge_batches, batches))
                for _ in batches:
                    self._queue.task_done()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the stream writer's thread raises it
            self.failure = error

    def _take_queued(self) -> tuple[list[Batch], bool]:
        """All batches that are queued now, and whether no more will come."""
        batches: list[Batch] = []
        try:
            while (batch := self._queue.get_nowait()) is not None:
                batches.append(batch)
        except Empty:
            return batches, False
        return batches, True

    def _commit(self, batch: Batch) -> None:
        if batch.files:
            self._hooks.before_commit(batch)
            self._lake.add(EVENTS, batch.files)
            self._hooks.after_commit(batch)
            self.progress.events += batch.rows
            self.progress.commits += 1
        if batch.position.position > self.progress.position.position:
            self._hooks.before_store(batch)
            self._lake.store_position(batch.position)
            self.progress.position = batch.position
            self._acknowledge(batch.position)
            self._hooks.after_store(batch)
        self._lake.run_housekeeping(batch.position)


def merge_batches(first: Batch, second: Batch) -> Batch:
    """Two successive batches as one, to be committed together."""
    is_first_unfinished = first.ends_in_transaction and first.position == second.position
    return Batch(second.position, first.files + second.files, second.ends_in_transaction or is_first_unfinished)
