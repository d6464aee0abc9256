"""A source's jobs, put together of what its kind brings: a stream writer and a snapshotter, made but not started."""

from collections.abc import Callable

from ingest.alone import AfterSnapshots
from ingest.config import Source
from ingest.lake import Lake
from ingest.positions import Position
from ingest.settings import JobSettings
from ingest.snapshot import SnapshotHooks, Snapshotter
from ingest.snapshot import Source as Tables
from ingest.stream import Feed, Hooks, StreamWriter


class SourceJobs:
    """The jobs of one source.

    position: where its stream goes on. tables: what snapshots read. feed: makes the stream's feed, of what is to be
    called when it shows something that has to be read. watermark: a position past all that is committed by now.
    """

    def __init__(
        self,
        lake: Lake,
        source: Source,
        settings: JobSettings,
        position: Position,
        tables: Tables,
        feed: Callable[[Callable[[], None]], Feed],
        watermark: Callable[[], int],
    ) -> None:
        self.name = source.name
        self.watermark = watermark
        self._lake = lake
        self._settings = settings
        self._position = position
        self._tables = tables
        self._feed = feed
        # Without tombstones what is there has to be read first, and alone.
        self._alone = not source.soft_deletes

    def writer(self, hooks: Hooks, queued: Snapshotter | None) -> StreamWriter:
        """The stream writer. queued: the snapshotter to be woken when the stream shows what has to be read."""
        feed = self._feed(queued.wake if queued else lambda: None)
        if self._alone:
            self._tables.survey()
            feed = AfterSnapshots(feed, self._lake, self.name)
        return StreamWriter(self._lake, feed, self._position, self._settings, hooks)

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        """The snapshotter; what there is now is registered, so that it can be waited for."""
        self._tables.survey()
        return Snapshotter(self._lake, self._tables, self.name, self._settings, hooks, alone=self._alone)

    def rest(self) -> None:
        """Nothing is read here: let go of what is held at the source, which may keep it from clearing up."""
        self._tables.close()
