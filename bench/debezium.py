"""Stream and snapshot of Tidemark against embedded Debezium, which writes to Iceberg by pydbzengine's handler."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from itertools import count
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from pydbzengine import DebeziumEngine
from pydbzengine.handlers.iceberg import IcebergChangeHandlerV2
from pyiceberg.catalog.sql import SqlCatalog

from bench import dataset, stream
from bench.environment import Environment
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_rates
from bench.runner import Side, run_in_turns
from bench.snapshot import READERS

# Fewer rows than in `stream` and `snapshot`: Debezium is slow, and its rate is constant after a few seconds.
LARGE_ROWS, SMALL_ROWS, SNAPSHOT_ROWS = 500_000, 400_000, 400_000
MARK = 6.0
VERSION = metadata.version("pydbzengine")


def results(environment: Environment) -> Iterator[Result]:
    """Streams one large transaction, then many small ones; then snapshots a table."""
    for name, rows in (("large", environment.sized(LARGE_ROWS)), ("small", environment.sized(SMALL_ROWS))):
        log: dict[str, Any] = {"dsn": environment.dsn, "slot": name, "rows": rows}
        log["until"] = stream.prepare(environment.dsn, name, rows)
        sides = {
            "ours": Side("bench.stream:tidemark", {**log, "lake": environment.new_folder("lake")}),
            "other": Side("bench.debezium:debezium", {**log, "folder": environment.new_folder("debezium")}),
        }
        runs = run_in_turns(sides, environment.runs)
        yield compare_rates(f"stream.{name} / Debezium {VERSION}", runs["ours"], runs["other"], "events/s", MARK)
        dataset.drop_slots(environment.dsn)
    rows = environment.sized(SNAPSHOT_ROWS)
    dataset.create_table(environment.dsn, "items", rows)
    table: dict[str, Any] = {"dsn": environment.dsn, "rows": rows}
    sides = {
        "ours": Side("bench.snapshot:tidemark", {**table, "lake": environment.new_folder("lake")}),
        "other": Side("bench.debezium:snapshot", {**table, "folder": environment.new_folder("debezium")}),
    }
    runs = run_in_turns(sides, environment.runs)
    yield compare_rates(f"snapshot / Debezium {VERSION}", runs["ours"], runs["other"], "rows/s")


class _CountingHandler(IcebergChangeHandlerV2):  # type: ignore[misc, unused-ignore]
    """Sets `done` when `expected` records are committed."""

    def __init__(self, expected: int, **options: Any) -> None:
        super().__init__(**options)
        self.left = expected
        self.began = threading.Event()
        self.done = threading.Event()

    def handleJsonBatch(self, records: Any) -> None:  # noqa: N802  # Debezium's name
        self.began.set()
        super().handleJsonBatch(records)
        self.left -= len(records)
        if self.left <= 0:
            self.done.set()


def debezium(dsn: str, slot: str, until: int, rows: int, folder: str) -> Iterator[Run]:  # noqa: ARG001  # it ends by count
    """Streaming only, from a copy of the slot, in large batches; measured from the first batch on."""
    copy = "debezium"
    streaming = {
        "slot.name": copy,
        "publication.name": stream.PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "table.include.list": f"public.stream_{slot}",
        "snapshot.mode": "no_data",
    }
    catalog = _catalog(folder)
    for number in count():
        dataset.copy_slot(dsn, slot, copy)
        yield _run_engine(catalog, number, rows, {**_properties(dsn, folder, number), **streaming})


def snapshot(dsn: str, rows: int, folder: str) -> Iterator[Run]:
    """The initial snapshot only, with as many threads as Tidemark has workers; measured in the same way."""
    reading = {
        "slot.name": "debezium",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.items",
        "snapshot.mode": "initial_only",
        "snapshot.max.threads": READERS,
        "snapshot.fetch.size": "20000",
    }
    catalog = _catalog(folder)
    for number in count():
        yield _run_engine(catalog, number, rows, {**_properties(dsn, folder, number), **reading})
        dataset.drop_slots(dsn)


def _catalog(folder: str) -> SqlCatalog:
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def _run_engine(catalog: SqlCatalog, number: int, rows: int, properties: Mapping[str, object]) -> Run:
    """One run of the engine, into its own tables."""
    catalog.create_namespace(f"raw{number}")
    handler = _CountingHandler(rows, catalog=catalog, destination_namespace=(f"raw{number}",))
    engine = DebeziumEngine(properties={key: str(value) for key, value in properties.items()}, handler=handler)
    running = threading.Thread(target=_run_until_closed, args=[engine], daemon=True)
    running.start()
    assert handler.began.wait(120), "no records have arrived"
    with stopwatch() as run:
        assert handler.done.wait(600), f"{handler.left} of {rows} events are missing"
    engine.close()
    running.join(60)
    run.amount = rows
    return run


def _run_until_closed(engine: Any) -> None:
    with suppress(Exception):  # closing the engine interrupts it
        engine.run()


def _properties(dsn: str, folder: str, number: int) -> dict[str, object]:
    address = conninfo_to_dict(dsn)
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": address["host"],
        "database.port": address["port"],
        "database.user": address["user"],
        "database.dbname": address["dbname"],
        "plugin.name": "pgoutput",
        "topic.prefix": "bench",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/{number}.offsets",
        "offset.flush.interval.ms": "1000",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "decimal.handling.mode": "string",
        "max.batch.size": "20000",
        "max.queue.size": "81920",
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.add.fields": "op,table,lsn,source.ts_ms",
    }
