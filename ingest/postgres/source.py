"""A Postgres source's jobs: the slots exist before anything is read; the snapshot that the making of the last one
exported is the first tables'.
"""

from functools import partial

from ingest.config import PostgresSource
from ingest.lake import Lake
from ingest.positions import Position
from ingest.postgres import sharing
from ingest.postgres.catalog import watermark
from ingest.postgres.connection import connect
from ingest.postgres.feed import PostgresFeed
from ingest.postgres.snapshots import PostgresTables
from ingest.postgres.writers import Departure, open_writers
from ingest.settings import JobSettings
from ingest.sourcejobs import SourceJobs, Stream


def open_jobs(lake: Lake, source: PostgresSource, settings: JobSettings, *, stream: bool = True) -> SourceJobs:
    """The jobs; publications and slots are made if they are missing. stream: the tables are shared out among the
    writers.

    Raises Failure when the source can't be reached or its log is lost.
    """
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_seconds
    positions, held = open_writers(lake, source, settings)
    if stream:
        with connect(dsn, connect_seconds=seconds) as connection:
            sharing.share_out(connection, lake, source)

    def one(position: Position) -> Stream:
        leaves = position.writer > source.writers
        return Stream(
            position,
            partial(PostgresFeed, lake, source, settings, position),
            Departure(lake, source, settings, position) if leaves else None,
        )

    def now() -> int:
        with connect(dsn, connect_seconds=seconds) as connection:
            return watermark(connection)

    return SourceJobs(
        lake,
        source,
        settings,
        [one(position) for position in positions.values()],
        PostgresTables(lake, source, settings, held),
        now,
    )
