"""A source's jobs, put together of what its kind brings: stream writers and a snapshotter, made but not started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import Source
from ingest.lake import Lake
from ingest.positions.position import Position
from ingest.snapshot.snapshot_source import SnapshotSource
from ingest.snapshot.snapshotter import SnapshotHooks, Snapshotter
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.snapshot_first_feed import SnapshotFirstFeed
from ingest.stream.stream_feed import Feed
from ingest.stream.stream_writer import ExitCondition, StreamWriter


@dataclass(frozen=True)
class Stream:
    """One writer's stream.

    position: where it goes on. feed: makes its feed, of what is to be called when it shows something that has to be
    read. departure: of a writer that is to leave.
    """

    position: Position
    feed: Callable[[Callable[[], None]], Feed]
    departure: ExitCondition | None = None


class SourceJobs:
    """The jobs of one source.

    streams: those of its writers. tables: what snapshots read. watermark: a position past all that is committed by now.
    """

    def __init__(
        self,
        lake: Lake,
        source: Source,
        settings: JobSettings,
        streams: Sequence[Stream],
        tables: SnapshotSource,
        watermark: Callable[[], int],
    ) -> None:
        self.name = source.name
        self.streams = streams
        self.watermark = watermark
        self._lake = lake
        self._settings = settings
        self._tables = tables
        # Without tombstones what is there has to be read first, and alone.
        self._stream_waits = not source.soft_deletes

    def writer(self, stream: Stream, hooks: CommitHooks, queued: Snapshotter | None) -> StreamWriter:
        """A stream's writer. queued: the snapshotter to be woken when the stream shows what has to be read."""
        feed = stream.feed(queued.wake if queued else lambda: None)
        if self._stream_waits:
            self._tables.sync_catalog()
            feed = SnapshotFirstFeed(feed, self._lake, self.name, queued.unreadable if queued else ())
        return StreamWriter(self._lake, feed, stream.position, self._settings, hooks, stream.departure)

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        """The snapshotter; what there is now is registered, so that it can be waited for."""
        self._tables.sync_catalog()
        return Snapshotter(self._lake, self._tables, self.name, self._settings, hooks, stream_waits=self._stream_waits)

    def rest(self) -> None:
        """Nothing is read here: let go of what is held at the source, which may keep it from clearing up."""
        self._tables.close()
