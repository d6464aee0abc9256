"""A MongoDB source's jobs. The stream's first position is stored before a snapshot starts, so no event is missed."""

from functools import partial

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource
from ingest.lake import Lake
from ingest.sources.interface.source_jobs import SourceJobs, Stream
from ingest.sources.mongodb import mongodb_connection, mongodb_server
from ingest.sources.mongodb.change_stream.change_stream_feed import MongoFeed, open_writer
from ingest.sources.mongodb.snapshot.mongodb_snapshot_source import MongoCollections
from ingest.sources.mongodb.stream_scope import StreamScope


def open_jobs(lake: Lake, source: MongoSource, settings: JobSettings) -> SourceJobs:
    """The jobs. Raises Failure if the source can't be reached, or is another deployment than before."""
    position = open_writer(lake, source, settings)
    scope = StreamScope.parse(position.slot)

    def now() -> int:
        with mongodb_connection.connect(source.uri.get_secret_value(), settings.connect_timeout_seconds) as client:
            return mongodb_server.emit_marker(client, scope.level)

    return SourceJobs(
        lake,
        source,
        settings,
        [Stream(position, partial(MongoFeed, lake, source, settings, position))],
        MongoCollections(lake, source, settings, scope),
        now,
    )
