"""A Postgres source's jobs: the slot exists before anything is read; the snapshot that its making exported is the first
tables'.
"""

from ingest.config import PostgresSource
from ingest.lake import Lake
from ingest.postgres.catalog import watermark
from ingest.postgres.connection import connect
from ingest.postgres.feed import PostgresFeed, open_writer
from ingest.postgres.snapshots import PostgresTables
from ingest.settings import JobSettings
from ingest.sourcejobs import SourceJobs


def open_jobs(lake: Lake, source: PostgresSource, settings: JobSettings) -> SourceJobs:
    """The jobs; publication and slot are made if they are missing.

    Raises Failure when the source can't be reached or its log is lost.
    """
    position, held = open_writer(lake, source, settings)

    def now() -> int:
        with connect(source.dsn.get_secret_value(), connect_seconds=settings.connect_seconds) as connection:
            return watermark(connection)

    return SourceJobs(
        lake,
        source,
        settings,
        position,
        PostgresTables(lake, source, settings, held),
        lambda queued: PostgresFeed(lake, source, settings, position, queued),
        now,
    )
