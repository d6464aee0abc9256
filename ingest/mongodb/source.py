"""A MongoDB source's jobs, put together: its stream writer and its snapshotter.

The stream's first position is stored before anything is read, so nothing falls between the two.
"""

from ingest.alone import AfterSnapshots
from ingest.config import MongoSource
from ingest.lake import Lake
from ingest.mongodb import connection, server
from ingest.mongodb.feed import MongoFeed, open_writer
from ingest.mongodb.snapshots import MongoCollections
from ingest.settings import JobSettings
from ingest.snapshot import SnapshotHooks, Snapshotter
from ingest.stream import Feed, Hooks, StreamWriter


class MongoJobs:
    """The jobs of one source, made but not started.

    Raises Failure when the source can't be reached, or is another one than before.
    """

    def __init__(self, lake: Lake, source: MongoSource, settings: JobSettings) -> None:
        self.name = source.name
        self._lake = lake
        self._source = source
        self._settings = settings
        self._position = open_writer(lake, source, settings)
        self._collections = MongoCollections(lake, source, settings, self._position.slot)

    def writer(self, hooks: Hooks, queued: Snapshotter | None) -> StreamWriter:
        """The stream writer. queued: the snapshotter to be woken when a collection was made, dropped or renamed."""
        feed: Feed = MongoFeed(self._source, self._settings, self._position, queued.wake if queued else lambda: None)
        if not self._source.soft_deletes:
            self._collections.survey()  # what is there has to be read first
            feed = AfterSnapshots(feed, self._lake, self.name)
        return StreamWriter(self._lake, feed, self._position, self._settings, hooks)

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        """The snapshotter; the collections that there are now are registered, so that it can be waited for."""
        self._collections.survey()
        return Snapshotter(
            self._lake, self._collections, self.name, self._settings, hooks, alone=not self._source.soft_deletes
        )

    def rest(self) -> None:
        """Nothing is read here."""
        self._collections.close()

    def watermark(self) -> int:
        """A position past all that is committed by now."""
        uri = self._source.uri.get_secret_value()
        with connection.connected(uri, self._settings.connect_seconds) as client:
            return server.watermark(client, self._position.slot)
