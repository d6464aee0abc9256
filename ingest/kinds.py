"""What each kind of source brings to the commands: the one place that knows them all."""

from pathlib import Path
from typing import Protocol

from ingest.config import PostgresSource, Source
from ingest.findings import Finding
from ingest.lake import Lake
from ingest.mongodb import clustertime
from ingest.mongodb import codegen as mongodb_codegen
from ingest.mongodb import feed as mongodb_feed
from ingest.mongodb import preflight as mongodb_preflight
from ingest.mongodb import snapshots as mongodb_snapshots
from ingest.mongodb.source import MongoJobs
from ingest.positions import format_lsn
from ingest.postgres import codegen, feed, preflight, snapshots
from ingest.postgres.source import PostgresJobs
from ingest.settings import JobSettings
from ingest.snapshot import SnapshotHooks, Snapshotter
from ingest.snapshot import Source as Tables
from ingest.stream import Hooks, StreamWriter


class SourceJobs(Protocol):
    """The jobs of one source, made but not started."""

    name: str

    def writer(self, hooks: Hooks, queued: Snapshotter | None) -> StreamWriter:
        """The stream writer. queued: the snapshotter to be woken when something has to be read."""

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        """The snapshotter; what there is now is registered, so that it can be waited for."""

    def rest(self) -> None:
        """Nothing is read here."""

    def watermark(self) -> int:
        """A position past all that is committed by now."""


def jobs(lake: Lake, source: Source, settings: JobSettings) -> SourceJobs:
    """The jobs of a source. Raises Failure when it can't be reached, or its log is lost."""
    if isinstance(source, PostgresSource):
        return PostgresJobs(lake, source, settings)
    return MongoJobs(lake, source, settings)


def tables(lake: Lake, source: Source, settings: JobSettings) -> Tables:
    """A source's tables, to be read without a stream."""
    if isinstance(source, PostgresSource):
        return snapshots.PostgresTables(lake, source, settings)
    level = mongodb_feed.open_writer(lake, source, settings).slot
    return mongodb_snapshots.MongoCollections(lake, source, settings, level)


def check(source: Source, settings: JobSettings) -> list[Finding]:
    """What would keep a source from being replicated."""
    if isinstance(source, PostgresSource):
        return preflight.check(source, settings)
    return mongodb_preflight.check(source, settings)


def start_over(lake: Lake, source: Source, settings: JobSettings) -> None:
    """The stream begins anew, and all tables are queued."""
    if isinstance(source, PostgresSource):
        feed.start_over(lake, source, settings).close()
    else:
        mongodb_feed.start_over(lake, source, settings)


def position_text(source: Source, position: int) -> str:
    """A position in a source's log, for people."""
    return format_lsn(position) if isinstance(source, PostgresSource) else clustertime.readable(position)


def write_models(source: Source, settings: JobSettings, folder: Path, *, force: bool) -> list[str]:
    """Writes a source's staging views; says so in a few lines."""
    if isinstance(source, PostgresSource):
        return codegen.write_models(source, settings, folder, force=force)
    return mongodb_codegen.write_models(source, settings, folder, force=force)
