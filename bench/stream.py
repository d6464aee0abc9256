"""The stream: Postgres's WAL, committed into `raw.wal_events`, against `pg_recvlogical`, which discards it.

Both read the same part of the WAL from a copy of the same slot, with the same options.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from pydantic import SecretStr

from bench import dataset, ingest_runs
from bench.environment import Environment, open_lake
from bench.resource_usage import Run, run_program
from bench.result import Result, compare_rates
from bench.runner import Side, run_in_turns
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.devservers.embedded_servers import embedded_postgres
from ingest.positions.position import format_lsn
from ingest.sources.postgres.postgres_source import open_jobs

PUBLICATION = "bench"
LARGE_ROWS, SMALL_ROWS = 1_000_000, 780_000
MARK, MEMORY_MARK_MIB = 0.80, 600e6 / (1 << 20)


def results(environment: Environment) -> Iterator[Result]:
    """Measures one large transaction, then many small ones."""
    dsn = environment.dsn
    for name, rows in (("large", environment.sized(LARGE_ROWS)), ("small", environment.sized(SMALL_ROWS))):
        until = prepare(dsn, name, rows)
        log = {"dsn": dsn, "slot": name, "until": until, "rows": rows}
        sides = {
            "ours": Side("bench.stream:tidemark", {**log, "lake": environment.new_folder("lake")}),
            "other": Side("bench.stream:pg_recvlogical", log),
        }
        runs = run_in_turns(sides, environment.runs)
        result = compare_rates(f"stream.{name} / pg_recvlogical", runs["ours"], runs["other"], "events/s", MARK)
        yield result
        if name == "large":
            yield Result(
                "stream.large: memory of Python",
                result.peak_mib["ours"]["python"],
                None,
                "MiB",
                MEMORY_MARK_MIB,
                higher_is_better=False,
            )
        dataset.drop_slots(dsn)


def prepare(dsn: str, name: str, rows: int) -> int:
    """Creates a table, a slot called `name`, and the WAL after it; returns the end position."""
    table = f"stream_{name}"
    dataset.create_table(dsn, table)
    with dataset.connect(dsn) as connection:
        connection.execute(f"drop publication if exists {PUBLICATION}")
        connection.execute(f"create publication {PUBLICATION} for table {table}".encode())
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        if name == "large":
            dataset.insert_rows(connection, table, rows)
        else:
            dataset.insert_one_by_one(connection, table, rows)
        return dataset.emit_end_marker(connection)


def tidemark(dsn: str, slot: str, until: int, rows: int, lake: str) -> Iterator[Run]:
    """A stream writer as `tidemark stream` runs it."""
    opened = open_lake(lake)
    settings = JobSettings()
    for number in count():
        copy = f"ours_{number % 2}"
        start = dataset.copy_slot(dsn, slot, copy)
        options: dict[str, Any] = {"slot": copy, "publication": PUBLICATION, "tables": (f"public.stream_{slot}",)}
        source = PostgresSource(name=f"{slot}{number}", dsn=SecretStr(dsn), **options)
        ingest_runs.store_starts(opened, source, {1: start})
        yield ingest_runs.run_stream(open_jobs(opened, source, settings), until, rows)


def pg_recvlogical(dsn: str, slot: str, until: int, rows: int) -> Iterator[Run]:
    """Runs Postgres's own client, with output to /dev/null."""
    while True:
        copy = "theirs"
        dataset.copy_slot(dsn, slot, copy)
        command = [str(embedded_postgres() / "pg_recvlogical"), "-d", dsn, "--slot", copy, "--start", "-f", "/dev/null"]
        command += ["-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}", "-o", "messages=true"]
        run = run_program("pg_recvlogical", [*command, "--no-loop", "--endpos", format_lsn(until)])
        run.amount = rows
        yield run
