"""Many definitions: what a run costs when there is nothing to do, and when one of them was changed."""

from collections.abc import Iterator
from itertools import count

from bench import items
from bench.contest import Side, contest
from bench.measure import Run, stopwatch
from bench.place import Place
from bench.replica import Replica
from bench.result import Result, durations
from ingest.pipeline.run_loop import Pipeline

FEW, SOME, MANY = 5, 20, 50
IDLE_ROWS, REBUILT_ROWS = 1_000, 1_000_000
# The loop has been idle before, more often than not.
IDLE_WARM_UPS = 5
IDLE_MARK_SECONDS, REBUILD_MARK = 1.5, 0.1


def results(place: Place) -> Iterator[Result]:
    """Idle runs, then rebuilds."""
    items.make(place.dsn, "idle_items", IDLE_ROWS)
    sides = {
        str(number): Side(
            "bench.definitions:idle",
            {"dsn": place.dsn, "table": "idle_items", "number": number, "folder": place.new_folder("idle")},
        )
        for number in (FEW, SOME, MANY)
    }
    found = contest(sides, place.runs, IDLE_WARM_UPS)
    yield durations(f"idle run, {SOME} definitions", found[str(SOME)], mark=IDLE_MARK_SECONDS)
    yield durations(f"idle run, {MANY} definitions / {FEW}", found[str(MANY)], found[str(FEW)])
    rows = place.sized(REBUILT_ROWS)
    items.make(place.dsn, "rebuilt_items", rows)
    arguments = {"dsn": place.dsn, "table": "rebuilt_items", "number": SOME, "rows": rows}
    side = Side("bench.definitions:edited", {**arguments, "folder": place.new_folder("edited")})
    runs = contest({"ours": side}, place.runs)["ours"]
    one, every = ([Run(seconds=run.stages[part]) for run in runs] for part in ("one", "every"))
    yield durations(f"1 of {SOME} definitions changed / all", one, every, REBUILD_MARK)


def _built(dsn: str, table: str, number: int, folder: str) -> tuple[Replica, Pipeline]:
    replica = Replica(dsn, table, folder)
    for definition in range(number):
        replica.definition(f"d{definition}", "customer")
    replica.land()
    pipeline = replica.pipeline()
    pipeline.model()
    return replica, pipeline


def idle(dsn: str, table: str, number: int, folder: str) -> Iterator[Run]:
    """Runs of the warm loop with nothing new in the lake."""
    _, pipeline = _built(dsn, table, number, folder)
    while True:
        with stopwatch() as run:
            made = pipeline.model()
        run.stages = {outcome.name: outcome.seconds for outcome in made.outcomes}
        yield run


def edited(dsn: str, table: str, number: int, rows: int, folder: str) -> Iterator[Run]:
    """One definition changed, by which a tenth of its rows leave; then all of them, likewise."""
    replica, _ = _built(dsn, table, number, folder)
    tables = [f"buckets.d{definition}{part}" for definition in range(number) for part in ("", "__ops")]
    left_out = None
    for turn in count():
        before, ops = replica.snapshot_ids(tables), replica.count("buckets.d0__ops")
        replica.definition("d0", "customer", f"id % 10 <> {turn % 10}")
        pipeline = replica.pipeline()
        with stopwatch() as run:
            pipeline.model()
        one = run.seconds
        after = replica.snapshot_ids(tables)
        assert [name for name in tables if before[name] != after[name]] == ["buckets.d0", "buckets.d0__ops"]
        differing = sum(row % 10 in {turn % 10, left_out} for row in range(1, rows + 1))
        assert replica.count("buckets.d0__ops") - ops == differing, "not each row that differs is one op"
        left_out = (turn + 5) % 10
        for definition in range(number):
            replica.definition(f"d{definition}", "customer", f"id % 10 <> {left_out}")
        pipeline = replica.pipeline()
        with stopwatch() as run:
            pipeline.model()
        run.amount = rows
        run.stages = {"one": one, "every": run.seconds}
        yield run
