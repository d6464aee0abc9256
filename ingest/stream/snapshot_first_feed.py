"""Snapshots first and alone: the stream of a source without soft deletes waits while its tables are read.

Without tombstones nothing would tell that a row which a snapshot brings late was deleted meanwhile (design rule S5).
"""

import logging
import time
from collections.abc import Container

from ingest.common.records import EventBatch
from ingest.lake import Lake
from ingest.positions.position import Position, StreamReset
from ingest.stream.stream_writer import Feed

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class AfterSnapshots:
    """A `Feed` that gives what another one has, but nothing while a snapshot of the source is queued or running.

    The other goes on telling the server that it is alive; what it has read waits in its bounded buffer. given_up: the
    table_ids of what can't be read, by who takes the snapshots; nobody waits for these.
    """

    def __init__(self, feed: Feed, lake: Lake, source: str, given_up: Container[str] = ()) -> None:
        self._feed, self._lake, self._source, self._given_up = feed, lake, source, given_up
        self._waits = False
        self._looked = float("-inf")
        self.start, self.before_landing = feed.start, feed.before_landing
        self.cancel, self.finish, self.stop = feed.cancel, feed.finish, feed.stop

    def read(self, timeout: float) -> EventBatch | StreamReset | None:
        """What came next; None: nothing did, or it has to wait."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            tables = self._lake.tables.read(self._source).values()
            waits_for = sorted(t.table_name for t in tables if t.is_pending and t.table_id not in self._given_up)
            if waits_for and not self._waits:
                _log.info("source %s: the stream waits for a snapshot of %s", self._source, ", ".join(waits_for))
            self._waits = bool(waits_for)
            self._looked = time.monotonic()
        if self._waits:
            time.sleep(timeout)
            return None
        return self._feed.read(timeout)

    def acknowledge(self, position: Position) -> None:
        """`position` is stored."""
        self._feed.acknowledge(position)
