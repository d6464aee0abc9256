"""A feed for sources without soft deletes: the stream is paused while a table of the source waits for its snapshot.

To a consumer of the raw tables that keeps no tombstones, a row that is deleted after a snapshot has read it, and before
the snapshot is committed, would come back. Snapshots therefore run first and alone (rule S5).
"""

import logging
import time
from collections.abc import Container

from ingest.common.records import EventBatch
from ingest.lake import Lake
from ingest.positions.position import Position, StreamReset
from ingest.stream.stream_feed import Feed

_log = logging.getLogger(__name__)

POLL_SECONDS = 1.0


class SnapshotFirstFeed:
    """A `Feed` that returns what another feed returns, but nothing while a snapshot of the source is queued or running.

    The other feed keeps its connection alive meanwhile, and holds what it has read in its bounded queue. unreadable:
    the table_ids of tables that can't be read at present, as the snapshotter knows them; the stream does not wait for
    these.
    """

    def __init__(self, feed: Feed, lake: Lake, source: str, unreadable: Container[str] = ()) -> None:
        self._feed, self._lake, self._source, self._unreadable = feed, lake, source, unreadable
        self._is_paused = False
        self._polled_at = float("-inf")
        self.start, self.prepare_commit = feed.start, feed.prepare_commit
        self.cancel, self.finish, self.stop = feed.cancel, feed.finish, feed.stop

    def read(self, timeout: float) -> EventBatch | StreamReset | None:
        """The next events; None if there are none, or while the stream is paused."""
        if time.monotonic() - self._polled_at >= POLL_SECONDS:
            self._poll()
        if self._is_paused:
            time.sleep(timeout)
            return None
        return self._feed.read(timeout)

    def acknowledge(self, position: Position) -> None:
        """See `Feed`."""
        self._feed.acknowledge(position)

    def _poll(self) -> None:
        tables = self._lake.tables.read(self._source).values()
        pending = sorted(t.table_name for t in tables if t.is_pending and t.table_id not in self._unreadable)
        if pending and not self._is_paused:
            _log.info("source %s: the stream waits for the snapshots of %s", self._source, ", ".join(pending))
        self._is_paused = bool(pending)
        self._polled_at = time.monotonic()
