"""Dispatches the commands' calls by kind of source: the only module that knows all kinds."""

from collections.abc import Callable, Collection

import psycopg
from pymongo.errors import PyMongoError

from ingest.codegen.staging_files import SourceViews
from ingest.codegen.staging_record import Record
from ingest.common import environment_errors as environment
from ingest.common.errors import Unavailable, UsageError, one_line
from ingest.common.findings import Finding
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Source
from ingest.lake import Lake
from ingest.positions.position import format_lsn
from ingest.snapshot.snapshot_source import SnapshotSource
from ingest.sources.mongodb import cluster_time, mongodb_connection, mongodb_source, stream_scope
from ingest.sources.mongodb import document_views as mongodb_codegen
from ingest.sources.mongodb import mongodb_checks as mongodb_preflight
from ingest.sources.mongodb.change_stream import change_stream_feed as mongodb_feed
from ingest.sources.mongodb.snapshot import mongodb_snapshot_source as mongodb_snapshots
from ingest.sources.postgres import postgres_connection, postgres_source, table_views
from ingest.sources.postgres.checks import postgres_checks
from ingest.sources.postgres.snapshot import postgres_snapshot_source
from ingest.sources.postgres.writers import writer_count, writer_reset
from ingest.sources.source_jobs import SourceJobs


def jobs(
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


def holders(source: Source, settings: JobSettings) -> list[str]:
    """The open transactions that a snapshot of a source waits for, the oldest first; none if it can't be reached."""
    return postgres_source.open_transactions(source, settings) if isinstance(source, PostgresSource) else []


def unavailable(error: BaseException, where: str) -> Unavailable | None:
    """An error as Unavailable, if its cause is the environment or a source's server; else None.

    where: the lake, used if the error names no folder.
    """
    if isinstance(error, psycopg.Error) and postgres_connection.is_connection_lost(error):
        return Unavailable(f"the connection to Postgres was lost ({one_line(str(error))})")
    if isinstance(error, PyMongoError) and mongodb_connection.is_transient(error):
        return Unavailable(f"the connection to MongoDB was lost ({mongodb_connection.describe_error(error)})")
    return environment.unavailable(error, where)


def tables(lake: Lake, source: Source, settings: JobSettings) -> SnapshotSource:
    """A source's tables for the snapshotter, in a process without a stream."""
    if isinstance(source, PostgresSource):
        return postgres_snapshot_source.PostgresTables(lake, source, settings)
    return mongodb_snapshots.MongoCollections(lake, source, settings, stream_scope.configured_scope(lake, source))


def check(source: Source, settings: JobSettings, needed: Collection[str] = ()) -> list[Finding]:
    """The findings about a source's replication. needed: the names of the tables that definitions read."""
    if isinstance(source, PostgresSource):
        return postgres_checks.check(source, settings, needed)
    return mongodb_preflight.check(source, settings, needed)


def start_over(lake: Lake, source: Source, settings: JobSettings) -> None:
    """Reset the stream, and queue all tables."""
    if isinstance(source, PostgresSource):
        writer_reset.start_over(lake, source, settings)
    else:
        mongodb_feed.start_over(lake, source, settings)


def start_over_writers(lake: Lake, source: Source, settings: JobSettings, writers: Collection[int]) -> list[str]:
    """Reset some of a source's writers; the names of the tables that are queued for it."""
    if isinstance(source, PostgresSource):
        return writer_reset.start_over_writers(lake, source, settings, writers)
    raise UsageError("the source has one writer only", f"source {source.name}", "Use --all")


def set_writers(lake: Lake, source: Source, settings: JobSettings) -> None:
    """Change the number of a source's writers to `writers` of sources.yml."""
    if not isinstance(source, PostgresSource):
        raise UsageError("a MongoDB source has one writer", f"source {source.name}")
    writer_count.set_writers(lake, source, settings)


def position_text(source: Source, position: int) -> str:
    """A position in a source's log as text, for messages."""
    return format_lsn(position) if isinstance(source, PostgresSource) else cluster_time.format_position(position)


def views(source: Source, settings: JobSettings, record: Record) -> SourceViews:
    """A source's staging views. record: of the existing ones."""
    if isinstance(source, PostgresSource):
        return table_views.views(source, settings, record)
    return mongodb_codegen.views(source, settings, record)
