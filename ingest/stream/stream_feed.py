"""The interface between a stream writer and its source: a feed of decoded events.

`PostgresFeed` and `MongoFeed` implement it; `SnapshotFirstFeed` wraps one of them.
"""

from typing import Protocol

from ingest.common.records import EventBatch
from ingest.positions.position import Position, StreamReset


class Feed(Protocol):
    """The events of one replication slot or change stream. All methods but `cancel` and `acknowledge` are called by the
    thread that runs the stream writer, `acknowledge` by its committer's thread.
    """

    def start(self) -> None:
        """Begin to read from the stored position."""

    def read(self, timeout: float) -> EventBatch | StreamReset | None:
        """The next events, in the order of the source's log; None if there are none within `timeout` seconds."""

    def acknowledge(self, position: Position) -> None:
        """`position` is stored: the source may discard its log before it."""

    def prepare_commit(self) -> bool:
        """Called before all that was read so far is committed; false: it must not be committed."""

    def cancel(self) -> None:
        """End every wait for the source. Called by any thread."""

    def finish(self) -> None:
        """Read no more from the source; `read` still returns what was read before."""

    def stop(self) -> None:
        """Report the stored position to the source and close the connection."""
