"""Peak memory of a snapshot against that of one with a tenth of the rows, both during a busy stream."""

import subprocess
from collections.abc import Iterator
from itertools import count

from pydantic import SecretStr

from bench import dataset
from bench.environment import Environment, open_lake
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_rates, summarize_costs
from bench.runner import Side, run_in_turns
from ingest.config.sources_file import PostgresSource, Settings
from ingest.devservers.embedded_servers import embedded_postgres
from ingest.pipeline.ingest_jobs import Jobs

ROWS, FEW_ROWS = 5_000_000, 500_000
PGBENCH_RATE = 1000
MARK = 1.1


def results(environment: Environment) -> Iterator[Result]:
    """Measures stream and snapshot in one process while pgbench runs."""
    pgbench = [str(embedded_postgres() / "pgbench"), *dataset.pgbench_options(environment.dsn)]
    subprocess.run([*pgbench, "-i", "-q"], check=True, capture_output=True)
    sides = {}
    for name, rows in (("ours", ROWS), ("other", FEW_ROWS)):
        table = f"{name}_many"
        dataset.create_table(environment.dsn, table, environment.sized(rows))
        arguments = {
            "dsn": environment.dsn,
            "table": table,
            "rows": environment.sized(rows),
            "lake": environment.new_folder("lake"),
        }
        sides[name] = Side("bench.memory:stream_and_snapshot", arguments)
    clients = subprocess.Popen(
        [*pgbench, "-n", "-c", "2", "-R", str(PGBENCH_RATE), "-T", "3600"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        runs = {name: run_in_turns({name: side}, environment.runs)[name] for name, side in sides.items()}
        assert clients.poll() is None, "pgbench has ended"
    finally:
        clients.terminate()
        clients.wait()
    yield compare_rates("snapshot during a stream, 5M rows / 0.5M", runs["ours"], runs["other"], "rows/s")
    peaks = summarize_costs(runs)["peak_mib"]
    for process in sorted(peaks["ours"].keys() & peaks["other"].keys()):
        many, few = peaks["ours"][process], peaks["other"][process]
        yield Result(f"peak of {process}, 5M rows / 0.5M", many, few, "MiB", MARK, higher_is_better=False)
    lag = max(run.stages["seconds of lag"] for run in runs["ours"])
    yield Result("maximum lag of the stream, during 5M rows", lag, None, "s", higher_is_better=False)


def stream_and_snapshot(dsn: str, table: str, rows: int, lake: str) -> Iterator[Run]:
    """Runs stream and snapshot from the queued table until the snapshot is complete and the stream is past its end."""
    opened = open_lake(lake)
    for number in count():
        source = PostgresSource(
            name=f"{table}{number}", dsn=SecretStr(dsn), tables=(f"public.{table}", "public.pgbench_*")
        )
        jobs = Jobs(opened, Settings(sources={source.name: source}))
        with stopwatch() as run, jobs.running():
            jobs.wait(until_caught_up=True)
        run.amount = rows
        lag = opened.spark.sql(
            f"select max(unix_micros(ingested_at) - unix_micros(commit_ts)) / 1e6 from raw.wal_events "
            f"where source = '{source.name}'"
        ).collect()[0][0]
        run.stages = {"seconds of lag": float(lag)}
        dataset.drop_slot(dsn, source.slot)
        yield run
