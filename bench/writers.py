"""Stream writers: two of one source against one; commits during reads against commits between reads; eight at once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pyarrow as pa
from pydantic import SecretStr

from bench import dataset, ingest_runs
from bench.environment import Environment, open_lake
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_rates
from bench.runner import Side, run_in_turns
from ingest.common.records import EVENTS, EventBatch
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake, raw_schema
from ingest.positions.position import Position, StreamReset
from ingest.sources.postgres.postgres_source import open_jobs
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.open_batch import Batch
from ingest.stream.stream_feed import Feed

ROWS, ROUNDS = 600_000, 30
COMMITS, COMMITTERS = 15, 8
TABLES = ("first_items", "second_items")


def results(environment: Environment) -> Iterator[Result]:
    """Measures a WAL of two tables, changed in turns; then commits only."""
    rows = environment.sized(ROWS) // (2 * ROUNDS) * (2 * ROUNDS)
    log = {"dsn": environment.dsn, "until": prepare(environment.dsn, rows), "rows": rows}
    sides = {
        name: Side(
            "bench.writers:streams", {**log, "writers": writers, "apart": apart, "lake": environment.new_folder(name)}
        )
        for name, writers, apart in (("one", 1, False), ("two", 2, False), ("apart", 1, True))
    }
    runs = run_in_turns(sides, environment.runs)
    yield compare_rates("writers: 2 / 1, of two tables", runs["two"], runs["one"], "events/s")
    yield compare_rates("commits during reading / between reads", runs["one"], runs["apart"], "events/s")
    dataset.drop_slots(environment.dsn)
    lake = environment.new_folder("lake")
    sides = {
        name: Side("bench.writers:commits", {"writers": writers, "lake": lake})
        for name, writers in (("many", COMMITTERS), ("one", 1))
    }
    runs = run_in_turns(sides, environment.runs)
    yield compare_rates(f"commits of {COMMITTERS} writers at once / of one", runs["many"], runs["one"], "commits/s")


def prepare(dsn: str, rows: int) -> int:
    """Creates tables, publications and slots for one writer and for two, and the WAL after them; returns its end."""
    for table in TABLES:
        dataset.create_table(dsn, table)
    with dataset.connect(dsn) as connection:
        for publication, tables in (("one", TABLES), ("two", TABLES[:1]), ("two_2", TABLES[1:])):
            connection.execute(f"create publication {publication} for table {', '.join(tables)}".encode())
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [publication])
        rows_per_insert = rows // (2 * ROUNDS)
        for number in range(ROUNDS):
            for table in TABLES:
                dataset.insert_rows(connection, table, rows_per_insert, after=number * rows_per_insert)
        return dataset.emit_end_marker(connection)


def streams(dsn: str, until: int, rows: int, writers: int, apart: bool, lake: str) -> Iterator[Run]:
    """The writers of one source, threads of one process. apart: nothing is read during a commit."""
    opened = open_lake(lake)
    publication = "one" if writers == 1 else "two"
    for number in count():
        slot = f"{'apart' if apart else 'ours'}_{publication}_{number}"
        source = PostgresSource(
            name=slot,
            dsn=SecretStr(dsn),
            slot=slot,
            publication=publication,
            writers=writers,
            tables=tuple(f"public.{table}" for table in TABLES),
        )
        starts = {}
        for writer in range(1, writers + 1):
            original = "one" if writers == 1 else source.publication_of(writer)
            starts[writer] = dataset.copy_slot(dsn, original, source.slot_of(writer))
        ingest_runs.store_starts(opened, source, starts)
        jobs = open_jobs(opened, source, JobSettings())
        yield ingest_runs.run_stream(jobs, until, rows, *(_pause_during_commits() if apart else ()))
        for writer in range(1, writers + 1):
            dataset.drop_slot(dsn, source.slot_of(writer))


def _pause_during_commits() -> tuple[CommitHooks, Callable[[Feed], Feed]]:
    idle = threading.Event()
    idle.set()

    def begins(_: Batch) -> None:
        idle.clear()

    def ends(_: Batch) -> None:
        idle.set()

    return CommitHooks(begins, ends, begins, ends), lambda feed: PausedFeed(feed, idle)


class PausedFeed:
    """A feed that returns nothing until `idle` is set."""

    def __init__(self, feed: Feed, idle: threading.Event) -> None:
        self._feed = feed
        self._idle = idle
        self.start, self.acknowledge, self.cancel = feed.start, feed.acknowledge, feed.cancel
        self.prepare_commit, self.finish, self.stop = feed.prepare_commit, feed.finish, feed.stop

    def read(self, timeout: float) -> EventBatch | StreamReset | None:
        """See `Feed`."""
        return self._feed.read(timeout) if self._idle.wait(timeout) else None


def commits(writers: int, lake: str) -> Iterator[Run]:
    """Commits of one row, each followed by its position; each writer is a thread with its own `Lake`."""
    spark = open_lake(lake).spark
    lakes = [Lake(spark) for _ in range(writers)]
    for number in count():
        positions = [
            Position(f"writers_{writers}_{number}", writer, "s", "1", 1, 1, 1) for writer in range(1, writers + 1)
        ]
        with ThreadPoolExecutor(writers) as pool, stopwatch() as run:
            list(pool.map(_commit, lakes, positions))
        run.amount = COMMITS * writers
        yield run


def _commit(lake: Lake, position: Position) -> None:
    row = pa.Table.from_pylist([{"source": position.source, "writer": position.writer, "commit_lsn": 1}], schema=EVENTS)
    for number in range(COMMITS):
        lake.append(raw_schema.EVENTS, row)
        lake.positions.store(replace(position, position=position.position + number))
