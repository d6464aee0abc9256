"""The stream writer: a loop that reads a source's events and commits them to `raw.wal_events`, batch by batch.

Four stages run in parallel: the feed reads the socket, `run`'s thread decodes and fills the open batch, a sink's thread
writes the batch's Parquet file, and the committer's thread commits closed batches. At most two closed batches wait,
each with at most one row group that is not written yet, so memory is bounded by the settings, never by a transaction
(rule T4).

Three positions, each at or behind the one before: `position` of the open batch (read), its `start` (queued to be
committed), and `progress.position` (stored). Each moves only over finished transactions (rule W1). Events of an
unfinished transaction may be committed earlier; they are not visible until the stored position is past them.
"""

import threading
import time
from dataclasses import replace

from ingest.common.errors import Failure
from ingest.common.records import EventBatch
from ingest.config.job_settings import JobSettings
from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS
from ingest.positions.position import Position, StreamReset
from ingest.stream.batch_committer import BatchCommitter, CommitHooks, Progress
from ingest.stream.flush_policy import FlushState, should_flush
from ingest.stream.open_batch import OpenBatch
from ingest.stream.stream_feed import Feed

# How long one `read` of the feed waits; while the writer ends, longer, so that what is still in the feed arrives.
READ_SECONDS, DRAIN_SECONDS = 0.05, 0.3


class StreamWriter:
    """One writer of a source. `run` it once, in any thread; `stop` it from any other. position: the stored one."""

    def __init__(
        self,
        lake: Lake,
        feed: Feed,
        position: Position,
        settings: JobSettings,
        hooks: CommitHooks | None = None,
    ) -> None:
        self._lake = lake
        self._feed = feed
        self._settings = settings
        self._committer = BatchCommitter(lake, feed.acknowledge, position, hooks or CommitHooks())
        self._batch = self._new_batch(position)
        self._position_queued_at = time.monotonic()
        self._is_commit_requested = False
        self._stop = threading.Event()

    @property
    def progress(self) -> Progress:
        """What is done so far; its `position` is the stored one."""
        return self._committer.progress

    def stop(self) -> None:
        """End after what was read so far is committed."""
        self._stop.set()
        self._feed.cancel()

    def request_position(self) -> None:
        """Store the position as soon as the committer is idle, even without events. Called by any thread."""
        self._position_queued_at = 0.0

    def request_commit(self) -> None:
        """Commit the open batch before its interval ends, if it is old enough. Called by any thread."""
        self._is_commit_requested = True

    def run(self, until: int | None = None) -> Progress:
        """Stream until `stop`, or until the stored position is past `until`. Raises what ended it."""
        self._feed.start()
        self._committer.start()
        try:
            while not self._is_over(until):
                self._step(until)
            self._feed.finish()
            self._drain(until)
            self._committer.finish()
        except BaseException:
            self._batch.discard()
            self._committer.abort()
            raise
        finally:
            self._feed.stop()
        return self.progress

    def _is_over(self, until: int | None) -> bool:
        has_passed = until is not None and self.progress.position.position > until
        return self._stop.is_set() or has_passed or self._committer.failure is not None

    def _step(self, until: int | None) -> None:
        received = self._feed.read(READ_SECONDS)
        if isinstance(received, StreamReset):
            self._restart(received)
        elif received is not None:
            self._add(received)
        self._flush_if_due(until, is_position_requested=isinstance(received, EventBatch) and received.reply_requested)

    def _drain(self, until: int | None) -> None:
        """Commit what is read; after `stop` also what the feed has read and not yet returned."""
        while until is None and self._committer.failure is None:
            received = self._feed.read(DRAIN_SECONDS)
            if not isinstance(received, EventBatch):
                break
            self._add(received)
            self._flush_if_due(until, is_position_requested=received.reply_requested)
        self._flush()

    def _add(self, received: EventBatch) -> None:
        self.progress.transactions += received.transactions
        self._batch.add(received)

    def _flush_if_due(self, until: int | None, *, is_position_requested: bool) -> None:
        batch = self._batch
        state = FlushState(
            size=batch.size,
            age=batch.age(),
            has_advanced=batch.has_advanced,
            crosses_target=batch.crosses(until),
            is_position_requested=is_position_requested,
            is_commit_requested=self._is_commit_requested,
            position_age=time.monotonic() - self._position_queued_at,
            is_committer_idle=self._committer.is_idle,
        )
        if should_flush(state, self._settings):
            self._flush()
        if state.is_commit_requested and state.is_committer_idle:
            self._is_commit_requested = False

    def _flush(self) -> None:
        """Close the open batch, queue it to be committed, and open the next one."""
        if self._batch.is_empty:
            return
        if not self._feed.prepare_commit():
            self._drop_uncommitted()
            return
        batch = self._batch.close()
        self._batch = self._new_batch(batch.position)
        if self._committer.enqueue(batch):
            self._position_queued_at = time.monotonic()

    def _restart(self, restart: StreamReset) -> None:
        """The source sends its log again from the stored position: what is not queued will come a second time."""
        self._drop_uncommitted()
        start = self._batch.start
        if restart.timeline != start.timeline:
            start = self._discard_timeline(restart.position)
        self._batch = self._new_batch(replace(start.advanced_to(restart.position), timeline=restart.timeline))

    def _drop_uncommitted(self) -> None:
        """Drop the open batch: its events come again after a restart."""
        self._batch.discard()
        self._batch = self._new_batch(self._batch.start)

    def _discard_timeline(self, position: int) -> Position:
        """The server has failed over to a timeline that left the old one at `position` or later: discard what is queued
        and what is committed beyond the stored position; gives that. Raises Failure if a commit has moved it past
        `position` meanwhile.
        """
        self._committer.discard_queued()
        stored = self.progress.position
        if stored.position > position:
            raise Failure(
                "the server failed over during a commit",
                f"source {stored.source}",
                "Start the stream again, so that the new timeline is compared with what is stored now",
            )
        self._lake.discard_timeline(replace(stored, position=position))
        return stored

    def _new_batch(self, start: Position) -> OpenBatch:
        return OpenBatch(start, lambda: self._lake.file_folder(EVENTS))
