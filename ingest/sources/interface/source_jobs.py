"""The jobs of a source, built from the parts of its kind: stream writers and a snapshotter, created but not started."""

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
from ingest.stream.stream_writer import StreamWriter


@dataclass(frozen=True)
class Stream:
    """The stream of one writer.

    position: where it starts. feed: creates its feed; the argument is called when the feed has queued a snapshot.
    """

    position: Position
    feed: Callable[[Callable[[], None]], Feed]


class SourceJobs:
    """The jobs of one source.

    streams: of its writers. tables: the snapshot source. emit_marker: writes a marker into the log, and returns its
    position, which is past everything committed before.
    """

    def __init__(
        self,
        lake: Lake,
        source: Source,
        settings: JobSettings,
        streams: Sequence[Stream],
        tables: SnapshotSource,
        emit_marker: Callable[[], int],
    ) -> None:
        self.name = source.name
        self.streams = streams
        self.emit_marker = emit_marker
        self._lake = lake
        self._settings = settings
        self._tables = tables
        # Without tombstones, snapshots must be complete before the stream starts.
        self._stream_waits = not source.soft_deletes

    def writer(self, stream: Stream, hooks: CommitHooks, queued: Snapshotter | None) -> StreamWriter:
        """The stream writer of a stream. queued: the snapshotter to wake when the stream has queued a snapshot."""
        feed = stream.feed(queued.wake if queued else lambda: None)
        if self._stream_waits:
            self._tables.sync_catalog()
            feed = SnapshotFirstFeed(feed, self._lake, self.name, queued.unreadable if queued else ())
        return StreamWriter(self._lake, feed, stream.position, self._settings, hooks)

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        """The snapshotter. The existing tables are registered first, so that callers can wait for their snapshots."""
        self._tables.sync_catalog()
        return Snapshotter(self._lake, self._tables, self.name, self._settings, hooks, stream_waits=self._stream_waits)

    def release_resources(self) -> None:
        """Release the source's resources, such as an exported snapshot, as no snapshot is taken here."""
        self._tables.close()
