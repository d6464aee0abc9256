"""Many definitions: the cost of a run without changes, and of a run with one changed definition."""

from collections.abc import Iterator
from itertools import count

from bench import dataset
from bench.dbt_project import BenchmarkProject
from bench.environment import Environment
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_durations
from bench.runner import Side, run_in_turns
from ingest.pipeline.run_loop import Pipeline

FEW, SOME, MANY = 5, 20, 50
IDLE_ROWS, REBUILT_ROWS = 1_000, 1_000_000
# In practice the loop has usually been idle before.
IDLE_WARM_UPS = 5
IDLE_MARK_SECONDS, REBUILD_MARK = 1.5, 0.1


def results(environment: Environment) -> Iterator[Result]:
    """Measures idle runs, then rebuilds."""
    dataset.create_table(environment.dsn, "idle_items", IDLE_ROWS)
    sides = {
        str(number): Side(
            "bench.definitions:idle",
            {"dsn": environment.dsn, "table": "idle_items", "number": number, "folder": environment.new_folder("idle")},
        )
        for number in (FEW, SOME, MANY)
    }
    idle_runs = run_in_turns(sides, environment.runs, IDLE_WARM_UPS)
    yield compare_durations(f"idle run, {SOME} definitions", idle_runs[str(SOME)], mark=IDLE_MARK_SECONDS)
    yield compare_durations(f"idle run, {MANY} definitions / {FEW}", idle_runs[str(MANY)], idle_runs[str(FEW)])
    rows = environment.sized(REBUILT_ROWS)
    dataset.create_table(environment.dsn, "rebuilt_items", rows)
    arguments = {"dsn": environment.dsn, "table": "rebuilt_items", "number": SOME, "rows": rows}
    side = Side("bench.definitions:edited", {**arguments, "folder": environment.new_folder("edited")})
    # One run: the set-up and the rebuilds take minutes. The first build warms the process up.
    runs = run_in_turns({"ours": side}, runs=1, warm_ups=0)["ours"]
    one, every = ([Run(seconds=run.stages[part]) for run in runs] for part in ("one", "every"))
    yield compare_durations(f"1 of {SOME} definitions changed / all", one, every, REBUILD_MARK)


def _build(dsn: str, table: str, number: int, folder: str) -> tuple[BenchmarkProject, Pipeline]:
    bench_project = BenchmarkProject(dsn, table, folder)
    for definition in range(number):
        bench_project.write_definition(f"d{definition}", "customer")
    bench_project.ingest()
    pipeline = bench_project.pipeline()
    pipeline.model()
    return bench_project, pipeline


def idle(dsn: str, table: str, number: int, folder: str) -> Iterator[Run]:
    """Runs of the warm loop without new changes in the lake."""
    _, pipeline = _build(dsn, table, number, folder)
    while True:
        with stopwatch() as run:
            dbt_run = pipeline.model()
        run.stages = {outcome.name: outcome.seconds for outcome in dbt_run.outcomes}
        yield run


def edited(dsn: str, table: str, number: int, rows: int, folder: str) -> Iterator[Run]:
    """Changes all definitions, so that each leaves out a tenth of the rows; then one of them."""
    bench_project, _ = _build(dsn, table, number, folder)
    tables = [f"buckets.d{definition}{part}" for definition in range(number) for part in ("", "__ops")]
    for turn in count():
        for definition in range(number):
            bench_project.write_definition(f"d{definition}", "customer", f"id % 10 <> {(turn + 5) % 10}")
        pipeline = bench_project.pipeline()
        with stopwatch() as every:
            pipeline.model()
        before, ops = bench_project.snapshot_ids(tables), bench_project.count_rows("buckets.d0__ops")
        bench_project.write_definition("d0", "customer", f"id % 10 <> {turn % 10}")
        pipeline = bench_project.pipeline()
        with stopwatch() as run:
            pipeline.model()
        after = bench_project.snapshot_ids(tables)
        assert [name for name in tables if before[name] != after[name]] == ["buckets.d0", "buckets.d0__ops"]
        differing = sum(row % 10 in {turn % 10, (turn + 5) % 10} for row in range(1, rows + 1))
        assert bench_project.count_rows("buckets.d0__ops") - ops == differing, "the ops do not match the different rows"
        run.amount = rows
        run.stages = {"one": run.seconds, "every": every.seconds}
        yield run
