"""A Postgres source's jobs. The slots exist before a snapshot starts; the first tables are read under the exported
snapshot of the slot that was created last.
"""

from collections.abc import Callable, Collection
from functools import partial

import psycopg

from ingest.common.errors import TidemarkError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.sources.interface.source_jobs import SourceJobs, Stream
from ingest.sources.postgres.catalog.catalog_tables import emit_marker
from ingest.sources.postgres.postgres_connection import connect, connection_error
from ingest.sources.postgres.replication.replication_feed import PostgresFeed
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.snapshot.postgres_snapshot_source import PostgresTables
from ingest.sources.postgres.writers import table_assignment
from ingest.sources.postgres.writers.postgres_writers import open_writers


def open_jobs(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    *,
    running: Collection[int] | None = None,
    wait: Callable[[float], bool] = table_assignment.sleep,
) -> SourceJobs:
    """The jobs. Missing publications and slots are created. running: the writers to run in this process (None: all).
    wait: sleeps some seconds while other processes or open transactions block; true: stop waiting.

    Raises Cancelled; Failure when the source can't be reached, the log of one of those is lost, or the lake has another
    number of writers.
    """
    dsn, seconds = source.dsn.get_secret_value(), settings.connect_timeout_seconds
    try:
        positions, exported = open_writers(lake, source, settings, running, wait)
    except psycopg.OperationalError as error:  # the connection was lost
        raise connection_error(dsn, error) from None

    def emit_source_marker() -> int:
        with connect(dsn, connect_timeout_seconds=seconds) as connection:
            return emit_marker(connection)

    return SourceJobs(
        lake,
        source,
        settings,
        [Stream(p, partial(PostgresFeed, lake, source, settings, p)) for p in positions.values()],
        PostgresTables(lake, source, settings, exported),
        emit_source_marker,
    )


def open_transactions(source: PostgresSource, settings: JobSettings) -> list[str]:
    """The open transactions that a snapshot waits for, the oldest first; none if the source can't be reached."""
    try:
        with connect(
            source.dsn.get_secret_value(), connect_timeout_seconds=settings.connect_timeout_seconds
        ) as connection:
            return replication_slots.find_open_transactions(connection)
    except (TidemarkError, psycopg.Error):
        return []
