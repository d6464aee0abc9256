"""Snapshots first and alone: the stream of a source without soft deletes waits while its tables are read.

Without tombstones nothing would tell that a row which a snapshot brings late was deleted meanwhile (design rule S5).
"""

import time

from ingest.change import EventBatch
from ingest.lake import Lake
from ingest.positions import Position, Restart
from ingest.stream import Feed

LOOK_SECONDS = 1.0


class AfterSnapshots:
    """A `Feed` that gives what another one has, but nothing while a snapshot of the source is queued or running.

    The other goes on telling the server that it is alive; what it has read waits in its bounded buffer.
    """

    def __init__(self, feed: Feed, lake: Lake, source: str) -> None:
        self._feed, self._lake, self._source = feed, lake, source
        self._waits = True
        self._looked = float("-inf")
        self.start, self.cancel, self.finish, self.stop = feed.start, feed.cancel, feed.finish, feed.stop

    def read(self, timeout: float) -> EventBatch | Restart | None:
        """What came next; None: nothing did, or it has to wait."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            tables = self._lake.tables.read(self._source).values()
            self._waits = any(table.is_pending for table in tables)
            self._looked = time.monotonic()
        if self._waits:
            time.sleep(timeout)
            return None
        return self._feed.read(timeout)

    def acknowledge(self, position: Position) -> None:
        """`position` is stored."""
        self._feed.acknowledge(position)
