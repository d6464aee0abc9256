"""The stream: Postgres's log into `raw.wal_events`, committed, against `pg_recvlogical`, which drops it.

Both read the same part of the log from a copy of the same slot, with the same options.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from pydantic import SecretStr

from bench import items, landing
from bench.contest import Side, contest
from bench.measure import Run, program
from bench.place import Place, open_lake
from bench.result import Result, rates
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.devservers.embedded_servers import embedded_postgres
from ingest.positions.position import format_lsn
from ingest.sources.postgres.postgres_source import open_jobs

PUBLICATION = "bench"
LARGE_ROWS, SMALL_ROWS = 1_000_000, 780_000
MARK, MEMORY_MARK_MIB = 0.80, 600e6 / (1 << 20)


def results(place: Place) -> Iterator[Result]:
    """One large transaction, then many small ones."""
    dsn = place.dsn
    for name, rows in (("large", place.sized(LARGE_ROWS)), ("small", place.sized(SMALL_ROWS))):
        until = prepare(dsn, name, rows)
        log = {"dsn": dsn, "slot": name, "until": until, "rows": rows}
        sides = {
            "ours": Side("bench.stream:tidemark", {**log, "lake": place.new_folder("lake")}),
            "other": Side("bench.stream:pg_recvlogical", log),
        }
        found = contest(sides, place.runs)
        result = rates(f"stream.{name} / pg_recvlogical", found["ours"], found["other"], "events/s", MARK)
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
        items.drop_slots(dsn)


def prepare(dsn: str, name: str, rows: int) -> int:
    """Makes a table, a slot called `name`, and the log behind it; where that ends."""
    table = f"stream_{name}"
    items.make(dsn, table)
    with items.connect(dsn) as connection:
        connection.execute(f"drop publication if exists {PUBLICATION}")
        connection.execute(f"create publication {PUBLICATION} for table {table}".encode())
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        if name == "large":
            items.insert(connection, table, rows)
        else:
            items.insert_one_by_one(connection, table, rows)
        return items.end(connection)


def tidemark(dsn: str, slot: str, until: int, rows: int, lake: str) -> Iterator[Run]:
    """A stream writer as `tidemark stream` runs it."""
    opened = open_lake(lake)
    settings = JobSettings()
    for number in count():
        copy = f"ours_{number % 2}"
        items.copy_slot(dsn, slot, copy)
        options: dict[str, Any] = {"slot": copy, "publication": PUBLICATION, "tables": (f"public.stream_{slot}",)}
        source = PostgresSource(name=f"{slot}{number}", dsn=SecretStr(dsn), **options)
        yield landing.stream(open_jobs(opened, source, settings), until, rows)


def pg_recvlogical(dsn: str, slot: str, until: int, rows: int) -> Iterator[Run]:
    """Postgres's own client, into /dev/null."""
    while True:
        copy = "theirs"
        items.copy_slot(dsn, slot, copy)
        command = [str(embedded_postgres() / "pg_recvlogical"), "-d", dsn, "--slot", copy, "--start", "-f", "/dev/null"]
        command += ["-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}", "-o", "messages=true"]
        run = program("pg_recvlogical", [*command, "--no-loop", "--endpos", format_lsn(until)])
        run.amount = rows
        yield run
