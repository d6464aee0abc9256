"""A MongoDB source's jobs: the stream's first position is stored before anything is read, so nothing falls between."""

from functools import partial

from ingest.config import MongoSource
from ingest.lake import Lake
from ingest.mongodb import connection, server
from ingest.mongodb.feed import MongoFeed, open_writer
from ingest.mongodb.scope import Scope
from ingest.mongodb.snapshots import MongoCollections
from ingest.settings import JobSettings
from ingest.sourcejobs import SourceJobs, Stream


def open_jobs(lake: Lake, source: MongoSource, settings: JobSettings) -> SourceJobs:
    """The jobs. Raises Failure when the source can't be reached, or is another one than before."""
    position = open_writer(lake, source, settings)
    scope = Scope.of(position.slot)

    def now() -> int:
        with connection.client(source.uri.get_secret_value(), settings.connect_seconds) as client:
            return server.watermark(client, scope.level)

    return SourceJobs(
        lake,
        source,
        settings,
        [Stream(position, partial(MongoFeed, lake, source, settings, position))],
        MongoCollections(lake, source, settings, scope),
        now,
    )
