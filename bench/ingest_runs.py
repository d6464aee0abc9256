"""Timed runs of Tidemark's ingest jobs, as the commands run them: from a position or from queued tables to the end."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bench.resource_usage import Run, stopwatch
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.sources.interface.source_jobs import SourceJobs, Stream
from ingest.sources.postgres.postgres_connection import connect
from ingest.sources.postgres.slots.replication_slots import identify_server
from ingest.sources.postgres.writers.postgres_writers import store_first_position
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.stream_feed import Feed


def run_snapshot(jobs: SourceJobs, rows: int) -> Run:
    """Runs a snapshotter from the queued tables until all snapshots are complete; the amount is in rows."""
    snapshotter = jobs.snapshotter()
    with stopwatch() as run:
        snapshotter.run(until_done=True)
    assert snapshotter.rows == rows, f"{snapshotter.rows} of {rows} rows were committed"
    run.amount = rows
    return run


def store_starts(lake: Lake, source: PostgresSource, starts: Mapping[int, int]) -> None:
    """Stores the start of each writer's slot as its position, so that the writers resume at it."""
    with connect(source.dsn.get_secret_value(), replication=True) as replication:
        server = identify_server(replication)
    for writer, start in starts.items():
        store_first_position(lake, source, server, writer, start)


def run_stream(
    jobs: SourceJobs,
    until: int,
    events: int,
    hooks: CommitHooks | None = None,
    wrap: Callable[[Feed], Feed] = lambda feed: feed,
) -> Run:
    """Runs the stream writers, each in a thread, up to a position; the amount is in events.

    The tables are registered before, as when a stream resumes. wrap: replaces a feed.
    """
    jobs.snapshotter()
    jobs.release_resources()
    writers = [jobs.writer(_wrap_feed(stream, wrap), hooks or CommitHooks(), None) for stream in jobs.streams]
    with ThreadPoolExecutor(len(writers)) as pool, stopwatch() as run:
        progress = list(pool.map(lambda writer: writer.run(until=until), writers))
    committed = sum(writer.events for writer in progress)
    assert committed == events, f"{committed} of {events} events were committed"
    run.amount = events
    run.stages = {"commits": sum(writer.commits for writer in progress)}
    return run


def _wrap_feed(stream: Stream, wrap: Callable[[Feed], Feed]) -> Stream:
    return replace(stream, feed=lambda wake: wrap(stream.feed(wake)))
