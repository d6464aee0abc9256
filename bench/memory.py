"""Peak memory: the same snapshot with a tenth of the rows, both beside a stream that is busy."""

import subprocess
from collections.abc import Iterator
from itertools import count

from pydantic import SecretStr

from bench import items
from bench.contest import Side, contest
from bench.measure import Run, stopwatch
from bench.place import Place, open_lake
from bench.result import Result, costs, rates
from ingest.config.sources_file import PostgresSource, Settings
from ingest.devservers.embedded_servers import embedded_postgres
from ingest.pipeline.ingest_jobs import Jobs

ROWS, FEW_ROWS = 5_000_000, 500_000
PGBENCH_RATE = 1000
MARK = 1.1


def results(place: Place) -> Iterator[Result]:
    """Stream and snapshot in one process while pgbench runs."""
    pgbench = [str(embedded_postgres() / "pgbench"), *items.pgbench_address(place.dsn)]
    subprocess.run([*pgbench, "-i", "-q"], check=True, capture_output=True)
    sides = {}
    for name, rows in (("ours", ROWS), ("other", FEW_ROWS)):
        table = f"{name}_many"
        items.make(place.dsn, table, place.sized(rows))
        arguments = {"dsn": place.dsn, "table": table, "rows": place.sized(rows), "lake": place.new_folder("lake")}
        sides[name] = Side("bench.memory:both", arguments)
    clients = subprocess.Popen(
        [*pgbench, "-n", "-c", "2", "-R", str(PGBENCH_RATE), "-T", "3600"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        found = {name: contest({name: side}, place.runs)[name] for name, side in sides.items()}
        assert clients.poll() is None, "pgbench has ended"
    finally:
        clients.terminate()
        clients.wait()
    yield rates("snapshot beside a stream, 5M rows / 0.5M", found["ours"], found["other"], "rows/s")
    peaks = costs(found)["peak_mib"]
    for process in sorted(peaks["ours"].keys() & peaks["other"].keys()):
        many, few = peaks["ours"][process], peaks["other"][process]
        yield Result(f"peak of {process}, 5M rows / 0.5M", many, few, "MiB", MARK, higher_is_better=False)
    behind = max(run.stages["seconds behind"] for run in found["ours"])
    yield Result("stream behind by, at most, during 5M rows", behind, None, "s", higher_is_better=False)


def both(dsn: str, table: str, rows: int, lake: str) -> Iterator[Run]:
    """Stream and snapshot from the queued table to the snapshot that is done, and seen by the stream."""
    opened = open_lake(lake)
    for number in count():
        source = PostgresSource(
            name=f"{table}{number}", dsn=SecretStr(dsn), tables=(f"public.{table}", "public.pgbench_*")
        )
        jobs = Jobs(opened, Settings(sources={source.name: source}))
        with stopwatch() as run, jobs.running():
            jobs.wait(until_caught_up=True)
        run.amount = rows
        behind = opened.spark.sql(
            f"select max(unix_micros(ingested_at) - unix_micros(commit_ts)) / 1e6 from raw.wal_events "
            f"where source = '{source.name}'"
        ).collect()[0][0]
        run.stages = {"seconds behind": float(behind)}
        items.drop_slot(dsn, source.slot)
        yield run
