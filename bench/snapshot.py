"""The snapshot of a table into `raw.snapshot_rows`, against other readers.

These are Spark's own JDBC reader into Iceberg, rivet into Parquet, and a drained COPY, the maximum of Postgres.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr
from pyspark.sql import SparkSession

from bench import dataset, ingest_runs
from bench.environment import Environment, open_lake
from bench.resource_usage import Run, run_program, stopwatch
from bench.result import Result, compare_rates
from bench.runner import Side, run_in_turns
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import spark_session
from ingest.sources.postgres.postgres_connection import connect, copy_out
from ingest.sources.postgres.postgres_source import open_jobs

ROWS = 2_000_000
JDBC = "org.postgresql:postgresql:42.7.8"
READERS = 2
MARKS = {
    f"Spark JDBC {JDBC.rpartition(':')[2]}": 1.0,
    f"rivet {metadata.version('rivet-cli')}": 0.75,
    "COPY drained": None,
}


def results(environment: Environment) -> Iterator[Result]:
    """Measures all readers of the same table, in turns."""
    dsn, rows = environment.dsn, environment.sized(ROWS)
    dataset.create_table(dsn, "items", rows)
    table: dict[str, Any] = {"dsn": dsn, "rows": rows}
    functions = dict(zip(MARKS, ("spark_jdbc", "rivet", "copy_drained"), strict=True))
    sides = {"ours": Side("bench.snapshot:tidemark", {**table, "lake": environment.new_folder("lake")})}
    for name, function in functions.items():
        sides[name] = Side(f"bench.snapshot:{function}", {**table, "folder": environment.new_folder(function)})
    runs = run_in_turns(sides, environment.runs)
    for name, mark in MARKS.items():
        yield compare_rates(f"snapshot / {name}", runs["ours"], runs[name], "rows/s", mark)


def tidemark(dsn: str, rows: int, lake: str) -> Iterator[Run]:
    """A snapshotter as `tidemark snapshot` runs it."""
    opened = open_lake(lake)
    for number in count():
        source = PostgresSource(name=f"items{number}", dsn=SecretStr(dsn), tables=("public.items",))
        run = ingest_runs.run_snapshot(open_jobs(opened, source, JobSettings()), rows)
        dataset.drop_slots(dsn)
        yield run


def spark_jdbc(dsn: str, rows: int, folder: str) -> Iterator[Run]:
    """Spark's JDBC reader, split by the key, into an Iceberg table with the raw tables' compression."""
    os.environ["TIDEMARK_LAKE"] = folder
    spark_settings = spark_session.read_settings("local")
    packages = f"{spark_settings.pop('spark.jars.packages')},{JDBC}"
    builder = SparkSession.builder.config("spark.jars.packages", packages)
    for key, value in spark_settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    address = conninfo_to_dict(dsn)
    reader = session.read.format("jdbc").options(
        url=f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}",
        driver="org.postgresql.Driver",
        user=address["user"],
        dbtable="items",
        fetchsize=10_000,
        numPartitions=READERS,
        partitionColumn="id",
        lowerBound=1,
        upperBound=rows,
    )
    for number in count():
        with stopwatch() as run:
            reader.load().writeTo(f"raw.items{number}").using("iceberg").tableProperty(
                "write.parquet.compression-codec", "zstd"
            ).create()
        assert session.table(f"raw.items{number}").count() == rows
        run.amount = rows
        yield run


def rivet(dsn: str, rows: int, folder: str) -> Iterator[Run]:
    """Rivet, by ranges of the key, without its default throttle and bookkeeping."""
    address = conninfo_to_dict(dsn)
    configuration = {
        "source": {
            "type": "postgres",
            "url": f"postgresql://{address['user']}@{address['host']}:{address['port']}/{address['dbname']}",
            "environment": "local",
        },
        "exports": [
            {
                "name": "items",
                "table": "items",
                "mode": "chunked",
                "chunk_column": "id",
                "chunk_size": rows // (2 * READERS) + 1,
                "parallel": READERS,
                "format": "parquet",
                "destination": {"type": "local", "path": f"{folder}/items/"},
                "columns": {"amount": "decimal(12,2)"},
            }
        ],
    }
    file = Path(folder) / "rivet.yaml"
    file.write_text(yaml.safe_dump(configuration))
    while True:
        shutil.rmtree(f"{folder}/items", ignore_errors=True)
        run = run_program("rivet", [str(Path(sys.executable).with_name("rivet")), "run", "-c", str(file)])
        assert any(Path(folder, "items").rglob("*.parquet"))
        run.amount = rows
        yield run


def copy_drained(dsn: str, rows: int, folder: str) -> Iterator[Run]:  # noqa: ARG001  # all contestants have the same arguments
    """One COPY in binary format, whose data are discarded."""
    with connect(dsn) as connection:
        while True:
            with stopwatch() as run:
                for _ in copy_out(connection, "COPY public.items TO STDOUT (FORMAT binary)"):
                    pass
            run.amount = rows
            yield run
