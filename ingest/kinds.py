"""What each kind of source brings to the commands: the one place that knows them all."""

from collections.abc import Callable, Collection

import psycopg
from pymongo.errors import PyMongoError

from ingest import unavailable as environment
from ingest.config import PostgresSource, Source
from ingest.errors import Unavailable, UsageError, one_line
from ingest.findings import Finding
from ingest.lake import Lake
from ingest.mongodb import clustertime, scope
from ingest.mongodb import codegen as mongodb_codegen
from ingest.mongodb import connection as mongodb_connection
from ingest.mongodb import feed as mongodb_feed
from ingest.mongodb import preflight as mongodb_preflight
from ingest.mongodb import snapshots as mongodb_snapshots
from ingest.mongodb import source as mongodb_source
from ingest.positions import format_lsn
from ingest.postgres import codegen, preflight, snapshots, startover
from ingest.postgres import connection as postgres_connection
from ingest.postgres import source as postgres_source
from ingest.settings import JobSettings
from ingest.snapshot_source import Source as Tables
from ingest.sourcejobs import SourceJobs
from ingest.stagingfiles import Found
from ingest.stagingrecord import Record


def jobs(
    lake: Lake,
    source: Source,
    settings: JobSettings,
    *,
    running: Collection[int] | None,
    wait: Callable[[float], bool],
) -> SourceJobs:
    """The jobs of a source. running: the writers that this process is to run (None: all). wait: sleeps some seconds;
    true: stop waiting. Raises Failure if the source can't be reached, or its log is lost.
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
    if isinstance(error, psycopg.Error) and postgres_connection.is_cut(error):
        return Unavailable(f"the connection to Postgres was cut ({one_line(str(error))})")
    if isinstance(error, PyMongoError) and mongodb_connection.passes(error):
        return Unavailable(f"the connection to MongoDB was cut ({mongodb_connection.said(error)})")
    return environment.unavailable(error, where)


def tables(lake: Lake, source: Source, settings: JobSettings) -> Tables:
    """A source's tables, to be read without a stream."""
    if isinstance(source, PostgresSource):
        return snapshots.PostgresTables(lake, source, settings)
    return mongodb_snapshots.MongoCollections(lake, source, settings, scope.given(lake, source))


def check(source: Source, settings: JobSettings, needed: Collection[str] = ()) -> list[Finding]:
    """What would keep a source from being replicated. needed: the names of the tables that definitions read."""
    if isinstance(source, PostgresSource):
        return preflight.check(source, settings, needed)
    return mongodb_preflight.check(source, settings, needed)


def start_over(lake: Lake, source: Source, settings: JobSettings) -> None:
    """The stream begins anew, and all tables are queued."""
    if isinstance(source, PostgresSource):
        startover.start_over(lake, source, settings)
    else:
        mongodb_feed.start_over(lake, source, settings)


def start_over_writers(lake: Lake, source: Source, settings: JobSettings, writers: Collection[int]) -> list[str]:
    """Some of a source's writers begin anew; gives the tables that are queued for it."""
    if isinstance(source, PostgresSource):
        return startover.start_over_writers(lake, source, settings, writers)
    raise UsageError("it has one writer", f"source {source.name}", "Use --all")


def position_text(source: Source, position: int) -> str:
    """A position in a source's log, for people."""
    return format_lsn(position) if isinstance(source, PostgresSource) else clustertime.readable(position)


def views(source: Source, settings: JobSettings, record: Record) -> Found:
    """A source's staging views. record: of those that are there."""
    if isinstance(source, PostgresSource):
        return codegen.views(source, settings, record)
    return mongodb_codegen.views(source, settings, record)
