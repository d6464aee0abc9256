"""The snapshot: a table into `raw.snapshot_rows`, against what else reads one.

Spark's own JDBC reader into Iceberg, rivet into Parquet, and COPY, drained, which is what Postgres gives at most.
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

from bench import items, landing
from bench.contest import Side, contest
from bench.measure import Run, program, stopwatch
from bench.place import Place, open_lake
from bench.result import Result, rates
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


def results(place: Place) -> Iterator[Result]:
    """All who read the same table, in turns."""
    dsn, rows = place.dsn, place.sized(ROWS)
    items.make(dsn, "items", rows)
    table: dict[str, Any] = {"dsn": dsn, "rows": rows}
    functions = dict(zip(MARKS, ("spark_jdbc", "rivet", "copy_drained"), strict=True))
    sides = {"ours": Side("bench.snapshot:tidemark", {**table, "lake": place.new_folder("lake")})}
    for name, function in functions.items():
        sides[name] = Side(f"bench.snapshot:{function}", {**table, "folder": place.new_folder(function)})
    found = contest(sides, place.runs)
    for name, mark in MARKS.items():
        yield rates(f"snapshot / {name}", found["ours"], found[name], "rows/s", mark)


def tidemark(dsn: str, rows: int, lake: str) -> Iterator[Run]:
    """A snapshotter as `tidemark snapshot` runs it."""
    opened = open_lake(lake)
    for number in count():
        source = PostgresSource(name=f"items{number}", dsn=SecretStr(dsn), tables=("public.items",))
        run = landing.snapshot(open_jobs(opened, source, JobSettings()), rows)
        items.drop_slots(dsn)
        yield run


def spark_jdbc(dsn: str, rows: int, folder: str) -> Iterator[Run]:
    """Spark's JDBC reader, split by the key, into an Iceberg table with the raw tables' compression."""
    os.environ["TIDEMARK_LAKE"] = folder
    found = spark_session.read_settings("local")
    packages = f"{found.pop('spark.jars.packages')},{JDBC}"
    builder = SparkSession.builder.config("spark.jars.packages", packages)
    for key, value in found.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    given = conninfo_to_dict(dsn)
    reader = session.read.format("jdbc").options(
        url=f"jdbc:postgresql://{given['host']}:{given['port']}/{given['dbname']}",
        driver="org.postgresql.Driver",
        user=given["user"],
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
    """Rivet, by ranges of the key, without the throttle and the bookkeeping that it has by default."""
    given = conninfo_to_dict(dsn)
    configuration = {
        "source": {
            "type": "postgres",
            "url": f"postgresql://{given['user']}@{given['host']}:{given['port']}/{given['dbname']}",
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
        run = program("rivet", [str(Path(sys.executable).with_name("rivet")), "run", "-c", str(file)])
        assert any(Path(folder, "items").rglob("*.parquet"))
        run.amount = rows
        yield run


def copy_drained(dsn: str, rows: int, folder: str) -> Iterator[Run]:  # noqa: ARG001  # all are called alike
    """One COPY in binary form, dropped."""
    with connect(dsn) as connection:
        while True:
            with stopwatch() as run:
                for _ in copy_out(connection, "COPY public.items TO STDOUT (FORMAT binary)"):
                    pass
            run.amount = rows
            yield run
