"""Dispatches the commands' calls by kind of source: the only module that knows all kinds."""

from collections.abc import Callable, Collection

import psycopg
from pymongo.errors import PyMongoError

from ingest.codegen.staging_files import SourceViews
from ingest.codegen.staging_record import Record
from ingest.common import environment_errors
from ingest.common.errors import TidemarkError, Unavailable, UsageError, one_line
from ingest.common.findings import Finding
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Source
from ingest.lake import Lake
from ingest.positions.position import current_epochs, format_lsn
from ingest.snapshot.snapshot_source import SnapshotSource
from ingest.sources.interface.source_jobs import SourceJobs
from ingest.sources.interface.source_lag import SourceLag
from ingest.sources.mongodb import (
    cluster_time,
    document_views,
    mongodb_checks,
    mongodb_connection,
    mongodb_lag,
    mongodb_source,
    stream_scope,
)
from ingest.sources.mongodb.change_stream import change_stream_feed
from ingest.sources.mongodb.snapshot import mongodb_snapshot_source
from ingest.sources.postgres import postgres_connection, postgres_lag, postgres_source, table_views
from ingest.sources.postgres.checks import postgres_checks
from ingest.sources.postgres.snapshot import postgres_snapshot_source
from ingest.sources.postgres.writers import writer_count, writer_reset


def open_jobs(
    lake: Lake,
    source: Source,
    settings: JobSettings,
    *,
    running: Collection[int] | None,
    wait: Callable[[float], bool],
) -> SourceJobs:
    """The jobs of a source. running: the writers to run in this process (None: all). wait: sleeps some seconds; true:
    stop waiting. Raises Failure if the source can't be reached, or its log is lost.
    """
    if isinstance(source, PostgresSource):
        return postgres_source.open_jobs(lake, source, settings, running=running, wait=wait)
    return mongodb_source.open_jobs(lake, source, settings)


def find_open_transactions(source: Source, settings: JobSettings) -> list[str]:
    """The open transactions that a snapshot of a source waits for, the oldest first; none if it can't be reached."""
    return postgres_source.open_transactions(source, settings) if isinstance(source, PostgresSource) else []


def as_unavailable(error: BaseException, where: str) -> Unavailable | None:
    """An error as Unavailable, if its cause is the environment or a source's server; else None.

    where: the lake, used if the error names no folder.
    """
    if isinstance(error, psycopg.Error) and postgres_connection.is_connection_lost(error):
        return Unavailable(f"the connection to Postgres was lost ({one_line(str(error))})")
    if isinstance(error, PyMongoError) and mongodb_connection.is_transient(error):
        return Unavailable(f"the connection to MongoDB was lost ({mongodb_connection.describe_error(error)})")
    return environment_errors.unavailable(error, where)


def open_snapshot_source(lake: Lake, source: Source, settings: JobSettings) -> SnapshotSource:
    """A source's tables for the snapshotter, in a process without a stream."""
    if isinstance(source, PostgresSource):
        return postgres_snapshot_source.PostgresTables(lake, source, settings)
    return mongodb_snapshot_source.MongoCollections(lake, source, settings, stream_scope.configured_scope(lake, source))


def read_lag(lake: Lake, source: Source, settings: JobSettings) -> SourceLag:
    """The state of a source's log; an error is its problem."""
    active = lake.sources.read_active_writers(source.name)
    epochs = current_epochs(lake.positions.read(source.name))
    positions = [position for (_, writer), position in epochs.items() if writer in active]
    try:
        if isinstance(source, PostgresSource):
            return postgres_lag.read_lag(lake, source, settings, positions)
        if not positions:
            return SourceLag()
        return mongodb_lag.read_lag(source, settings, *positions)
    except TidemarkError as error:
        return SourceLag(problem=str(error))


def check(
    source: Source, settings: JobSettings, needed: Collection[str] = (), slots: Collection[str] = ()
) -> list[Finding]:
    """The findings about a source's replication. needed: the names of the tables that definitions read. slots: those
    with a position in the lake.
    """
    if isinstance(source, PostgresSource):
        return postgres_checks.check(source, settings, needed, slots)
    return mongodb_checks.check(source, settings, needed)


def reset_source(lake: Lake, source: Source, settings: JobSettings) -> None:
    """Resets the stream, and queues all tables."""
    if isinstance(source, PostgresSource):
        writer_reset.start_over(lake, source, settings)
    else:
        change_stream_feed.start_over(lake, source, settings)


def reset_writers(lake: Lake, source: Source, settings: JobSettings, writers: Collection[int]) -> list[str]:
    """Resets some of a source's writers; returns the names of the tables that it has queued."""
    if isinstance(source, PostgresSource):
        return writer_reset.start_over_writers(lake, source, settings, writers)
    raise UsageError("the source has one writer only", f"source {source.name}", "Use --all")


def set_writers(lake: Lake, source: Source, settings: JobSettings) -> None:
    """Changes the number of a source's writers to `writers` of sources.yml."""
    if not isinstance(source, PostgresSource):
        raise UsageError("a MongoDB source has one writer", f"source {source.name}")
    writer_count.set_writers(lake, source, settings)


def format_position(source: Source, position: int) -> str:
    """A position in a source's log as text, for messages."""
    return format_lsn(position) if isinstance(source, PostgresSource) else cluster_time.format_position(position)


def read_staging_views(source: Source, settings: JobSettings, record: Record) -> SourceViews:
    """A source's staging views. record: of the existing ones."""
    if isinstance(source, PostgresSource):
        return table_views.views(source, settings, record)
    return document_views.views(source, settings, record)
