"""Our side of what lands: a source's jobs as the commands run them, timed from a position or a queue to the end."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bench.measure import Run, stopwatch
from ingest.sources.interface.source_jobs import SourceJobs, Stream
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.stream_feed import Feed


def snapshot(jobs: SourceJobs, rows: int) -> Run:
    """A snapshotter, from the queued tables to the snapshots that are done: rows."""
    snapshotter = jobs.snapshotter()
    with stopwatch() as run:
        snapshotter.run(until_done=True)
    assert snapshotter.rows == rows, f"{snapshotter.rows} of {rows} rows have landed"
    run.amount = rows
    return run


def stream(
    jobs: SourceJobs,
    until: int,
    events: int,
    hooks: CommitHooks | None = None,
    wrapped: Callable[[Feed], Feed] = lambda feed: feed,
) -> Run:
    """The stream writers, each a thread, up to a position: events.

    The tables are registered, as they are when a stream goes on. wrapped: what a feed is read by.
    """
    jobs.snapshotter()
    jobs.release_resources()
    writers = [jobs.writer(_wrapped(each, wrapped), hooks or CommitHooks(), None) for each in jobs.streams]
    with ThreadPoolExecutor(len(writers)) as pool, stopwatch() as run:
        progress = list(pool.map(lambda writer: writer.run(until=until), writers))
    landed = sum(each.events for each in progress)
    assert landed == events, f"{landed} of {events} events have landed"
    run.amount = events
    run.stages = {"commits": sum(each.commits for each in progress)}
    return run


def _wrapped(stream: Stream, wrapped: Callable[[Feed], Feed]) -> Stream:
    return replace(stream, feed=lambda wake: wrapped(stream.feed(wake)))
