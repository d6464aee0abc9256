"""A Postgres source's jobs, put together: its stream writers and its snapshotter, sharing what they may.

The slot exists before anything is read; the snapshot that its making exported is the first tables'.
"""

from ingest.alone import AfterSnapshots
from ingest.config import PostgresSource
from ingest.lake import Lake
from ingest.postgres.catalog import watermark
from ingest.postgres.connection import connect
from ingest.postgres.feed import PostgresFeed, open_writer
from ingest.postgres.snapshots import PostgresTables
from ingest.settings import JobSettings
from ingest.snapshot import SnapshotHooks, Snapshotter
from ingest.stream import Feed, Hooks, StreamWriter


class PostgresJobs:
    """The jobs of one source, made but not started. Making it makes publication and slot if they are missing.

    Raises Failure when the source can't be reached or its log is lost.
    """

    def __init__(self, lake: Lake, source: PostgresSource, settings: JobSettings) -> None:
        self.name = source.name
        self._lake = lake
        self._source = source
        self._settings = settings
        self._position, held = open_writer(lake, source, settings)
        self._tables = PostgresTables(lake, source, settings, held)

    def writer(self, hooks: Hooks, queued: "Snapshotter | None") -> StreamWriter:
        """The stream writer. queued: the snapshotter to be woken when the stream shows a table that has to be read."""
        feed: Feed = PostgresFeed(
            self._lake, self._source, self._settings, self._position, queued.wake if queued else lambda: None
        )
        if not self._source.soft_deletes:
            self._tables.survey()  # what is there has to be read first
            feed = AfterSnapshots(feed, self._lake, self.name)
        return StreamWriter(self._lake, feed, self._position, self._settings, hooks)

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        """The snapshotter; the tables that there are now are registered, so that it can be waited for."""
        self._tables.survey()
        return Snapshotter(
            self._lake, self._tables, self.name, self._settings, hooks, alone=not self._source.soft_deletes
        )

    def rest(self) -> None:
        """Nothing is read here: let go of the snapshot that the slot exported; it keeps the source from clearing up."""
        self._tables.close()

    def watermark(self) -> int:
        """A position past all that is committed by now."""
        dsn = self._source.dsn.get_secret_value()
        with connect(dsn, connect_seconds=self._settings.connect_seconds) as connection:
            return watermark(connection)
