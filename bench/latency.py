"""Latency from the commit in Postgres to the published row in `buckets.*`, at a constant rate of changes."""

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

from bench import dataset
from bench.dbt_project import BenchmarkProject
from bench.environment import Environment
from bench.resource_usage import Run, stopwatch
from bench.result import Result
from bench.runner import Side, run_in_turns
from ingest.devservers.embedded_servers import embedded_postgres
from ingest.pipeline.run_loop import DbtRun

# The rate with a mark is the last: by then Java has compiled most of its code.
RATES = (100, 2000, 500)
ROWS = 100_000
WARM_SECONDS, SECONDS = 20, 45
DEFINITIONS = {"by_customer": "customer", "by_status": "status", "large_orders": "customer"}
MARKS = {500: {"p50": 5.0, "p95": 8.0}}
_SCRIPT = f"""\\set id random(1, {ROWS})
update latency_items set status = 'seen', amount = amount + 1, updated = clock_timestamp() where id = :id;
"""


def results(environment: Environment) -> Iterator[Result]:
    """Measures one process that streams and models, at each rate in turn."""
    dataset.create_table(environment.dsn, "latency_items", ROWS)
    arguments = {"dsn": environment.dsn, "folder": environment.new_folder("latency")}
    runs = run_in_turns({"ours": Side("bench.latency:steady", arguments)}, runs=len(RATES), warm_ups=0)["ours"]
    for rate, run in zip(RATES, runs, strict=True):
        for quantile in ("p50", "p95", "p99"):
            yield Result(
                f"latency at {rate}/s, {quantile}",
                run.stages[quantile],
                None,
                "s",
                MARKS.get(rate, {}).get(quantile),
                higher_is_better=False,
                cpu_seconds={"ours": run.cpu},
                peak_mib={"ours": run.peak},
                stages={"ours": run.stages},
            )


def steady(dsn: str, folder: str) -> Iterator[Run]:
    """The warm loop. In each run pgbench updates rows at the next rate, one per transaction."""
    bench_project = BenchmarkProject(dsn, "latency_items", folder)
    for name, column in DEFINITIONS.items():
        bench_project.write_definition(name, column, "amount > 500" if name == "large_orders" else "true")
    bench_project.ingest()
    pipeline = bench_project.pipeline()
    pipeline.model()
    dbt_runs: list[DbtRun] = []
    with pipeline.running():
        looping = threading.Thread(target=pipeline.loop, args=[dbt_runs.append])
        looping.start()
        try:
            for rate in RATES:
                _pgbench(dsn, folder, rate, WARM_SECONDS)
                began = time.time()
                with stopwatch() as run:
                    _pgbench(dsn, folder, rate, SECONDS)
                ended = time.time()
                committed = pipeline.jobs.catch_up_targets()
                while not (pipeline.jobs.has_reached(committed) and _is_published(bench_project)):
                    time.sleep(0.5)
                    assert looping.is_alive()
                    assert time.time() < ended + 120, "not all commits have arrived"
                run.amount = rate
                run.stages = _stages(
                    bench_project, [dbt_run for dbt_run in dbt_runs if dbt_run.started > began - 60], rate, began, ended
                )
                yield run
        finally:
            pipeline.stop()
            looping.join()


def _is_published(bench_project: BenchmarkProject) -> bool:
    """Whether all definitions have published all committed events."""
    newest = f"select max(commit_lsn) from raw.wal_events where source = '{bench_project.name}'"
    query = (
        f"select min(position) > ({newest}) as is_all from core.model_watermarks where source = '{bench_project.name}'"
    )
    return bool(bench_project.lake.spark.sql(query).collect()[0].is_all)


def _pgbench(dsn: str, folder: str, rate: int, seconds: int) -> None:
    script = Path(folder) / "update.sql"
    script.write_text(_SCRIPT)
    pgbench = [str(embedded_postgres() / "pgbench"), *dataset.pgbench_options(dsn), "-n", "-M", "prepared", "-c", "4"]
    subprocess.run([*pgbench, "-R", str(rate), "-T", str(seconds), "-f", str(script)], check=True, capture_output=True)


def _stages(
    bench_project: BenchmarkProject, dbt_runs: Sequence[DbtRun], rate: int, began: float, ended: float
) -> dict[str, float]:
    """Percentiles of the latency of all commits in the period, and its parts: seconds from the commit to the decoded
    event, from there to the start of the run that reads it, and in the run until the rows of all definitions are
    visible on main. Also the seconds from there to the end of the run, and of each model in an average run.
    """
    spark = bench_project.lake.spark
    checkpoints = spark.sql(
        "select position, unix_micros(created_at) / 1e6 as at from core.checkpoints "
        f"where source = '{bench_project.name}' order by position"
    ).collect()
    moves_query = "select unix_micros(made_current_at) / 1e6 as at from buckets.{}.history"
    moves = spark.sql(" union all ".join(moves_query.format(name) for name in DEFINITIONS)).collect()
    values = []
    for before, checkpoint in pairwise(checkpoints):
        run = next((dbt_run for dbt_run in dbt_runs if dbt_run.started <= checkpoint.at <= dbt_run.ended), None)
        if run is not None:
            visible = max((move.at for move in moves if run.started < move.at < run.ended), default=run.ended)
            values.append(f"({before.position}L, {checkpoint.position}L, {run.started}D, {visible}D, {run.ended}D)")
    row = spark.sql(
        f"""
        select
            count(*) as events,
            percentile(visible - committed, array(0.5, 0.95, 0.99)) as quantiles,
            avg(decoded - committed) as to_decoded,
            avg(started - decoded) as to_run,
            avg(visible - started) as in_run,
            avg(ended - visible) as to_end
        from (
            select
                r.started,
                r.visible,
                r.ended,
                unix_micros(e.commit_ts) / 1e6 as committed,
                unix_micros(e.ingested_at) / 1e6 as decoded
            from raw.wal_events as e
            inner join values {", ".join(values)} as r (low, high, started, visible, ended)
                on e.commit_lsn >= r.low and e.commit_lsn < r.high
            where e.source = '{bench_project.name}'
        )
        where committed between {began} and {ended}
        """
    ).collect()[0]
    assert row.events > 0.9 * rate * (ended - began), f"{row.events} changes in {ended - began:.0f} s, not {rate}/s"
    within = [dbt_run for dbt_run in dbt_runs if dbt_run.started >= began and dbt_run.ended <= ended]
    names = [outcome.name for outcome in within[-1].outcomes] if within else []
    seconds = {
        f"model {name}": mean(sum(o.seconds for o in dbt_run.outcomes if o.name == name) for dbt_run in within)
        for name in names
    }
    p50, p95, p99 = row.quantiles
    latencies = {"p50": p50, "p95": p95, "p99": p99, "events": float(row.events), "runs": float(len(within))}
    parts = {"to decoded": row.to_decoded, "to run": row.to_run, "in run": row.in_run, "to its end": row.to_end}
    return {**latencies, **parts, **seconds}
