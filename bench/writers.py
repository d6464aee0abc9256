"""Writers: two of one source against one; landing beside reading against one after the other; eight at once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pyarrow as pa
from pydantic import SecretStr

from bench import items, landing
from bench.contest import Side, contest
from bench.measure import Run, stopwatch
from bench.place import Place, open_lake
from bench.result import Result, rates
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


def results(place: Place) -> Iterator[Result]:
    """A log of two tables, changed in turns; then commits alone."""
    rows = place.sized(ROWS) // (2 * ROUNDS) * (2 * ROUNDS)
    log = {"dsn": place.dsn, "until": prepare(place.dsn, rows), "rows": rows}
    sides = {
        name: Side("bench.writers:streams", {**log, "writers": writers, "apart": apart, "lake": place.new_folder(name)})
        for name, writers, apart in (("one", 1, False), ("two", 2, False), ("apart", 1, True))
    }
    found = contest(sides, place.runs)
    yield rates("writers: 2 / 1, of two tables", found["two"], found["one"], "events/s")
    yield rates("landing beside reading / after it", found["one"], found["apart"], "events/s")
    items.drop_slots(place.dsn)
    lake = place.new_folder("lake")
    sides = {
        name: Side("bench.writers:commits", {"writers": writers, "lake": lake})
        for name, writers in (("many", COMMITTERS), ("one", 1))
    }
    found = contest(sides, place.runs)
    yield rates(f"landings of {COMMITTERS} writers at once / of one", found["many"], found["one"], "landings/s")


def prepare(dsn: str, rows: int) -> int:
    """Two tables, publications and slots for one writer and for two, and the log behind them; where that ends."""
    for table in TABLES:
        items.make(dsn, table)
    with items.connect(dsn) as connection:
        for publication, tables in (("one", TABLES), ("two", TABLES[:1]), ("two_2", TABLES[1:])):
            connection.execute(f"create publication {publication} for table {', '.join(tables)}".encode())
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [publication])
        each = rows // (2 * ROUNDS)
        for number in range(ROUNDS):
            for table in TABLES:
                items.insert(connection, table, each, after=number * each)
        return items.end(connection)


def streams(dsn: str, until: int, rows: int, writers: int, apart: bool, lake: str) -> Iterator[Run]:
    """The writers of one source, threads of one process. apart: nothing is read while a landing is committed."""
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
        for writer in range(1, writers + 1):
            given = "one" if writers == 1 else source.publication_of(writer)
            items.copy_slot(dsn, given, source.slot_of(writer))
        jobs = open_jobs(opened, source, JobSettings())
        yield landing.stream(jobs, until, rows, *(_apart() if apart else ()))
        for writer in range(1, writers + 1):
            items.drop_slot(dsn, source.slot_of(writer))


def _apart() -> tuple[CommitHooks, Callable[[Feed], Feed]]:
    idle = threading.Event()
    idle.set()

    def begins(_: Batch) -> None:
        idle.clear()

    def ends(_: Batch) -> None:
        idle.set()

    return CommitHooks(begins, ends, begins, ends), lambda feed: Halting(feed, idle)


class Halting:
    """A feed that gives nothing until `idle` is set."""

    def __init__(self, feed: Feed, idle: threading.Event) -> None:
        self._feed = feed
        self._idle = idle
        self.start, self.acknowledge, self.cancel = feed.start, feed.acknowledge, feed.cancel
        self.prepare_commit, self.finish, self.stop = feed.prepare_commit, feed.finish, feed.stop

    def read(self, timeout: float) -> EventBatch | StreamReset | None:
        """See `Feed`."""
        return self._feed.read(timeout) if self._idle.wait(timeout) else None


def commits(writers: int, lake: str) -> Iterator[Run]:
    """Landings of a row, each with its position after it; a writer is a thread with a lake of its own."""
    spark = open_lake(lake).spark
    lakes = [Lake(spark) for _ in range(writers)]
    for number in count():
        each = [Position(f"writers_{writers}_{number}", writer, "s", "1", 1, 1, 1) for writer in range(1, writers + 1)]
        with ThreadPoolExecutor(writers) as pool, stopwatch() as run:
            list(pool.map(_commit, lakes, each))
        run.amount = COMMITS * writers
        yield run


def _commit(lake: Lake, position: Position) -> None:
    row = pa.Table.from_pylist([{"source": position.source, "writer": position.writer, "commit_lsn": 1}], schema=EVENTS)
    for number in range(COMMITS):
        lake.append(raw_schema.EVENTS, row)
        lake.store_position(replace(position, position=position.position + number))
