"""Debezium, embedded, into Iceberg by the handler that pydbzengine brings; what Tidemark streams, and what it
snapshots.
"""

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

from bench import items, stream
from bench.contest import Side, contest
from bench.measure import Run, stopwatch
from bench.place import Place
from bench.result import Result, rates
from bench.snapshot import READERS

# Fewer than of `stream` and `snapshot`: it takes long, and its rate is the same after a few seconds.
LARGE_ROWS, SMALL_ROWS, SNAPSHOT_ROWS = 500_000, 400_000, 400_000
MARK = 6.0
VERSION = metadata.version("pydbzengine")


def results(place: Place) -> Iterator[Result]:
    """One large transaction, many small ones, then a table."""
    for name, rows in (("large", place.sized(LARGE_ROWS)), ("small", place.sized(SMALL_ROWS))):
        log: dict[str, Any] = {"dsn": place.dsn, "slot": name, "rows": rows}
        log["until"] = stream.prepare(place.dsn, name, rows)
        sides = {
            "ours": Side("bench.stream:tidemark", {**log, "lake": place.new_folder("lake")}),
            "other": Side("bench.debezium:debezium", {**log, "folder": place.new_folder("debezium")}),
        }
        found = contest(sides, place.runs)
        yield rates(f"stream.{name} / Debezium {VERSION}", found["ours"], found["other"], "events/s", MARK)
        items.drop_slots(place.dsn)
    rows = place.sized(SNAPSHOT_ROWS)
    items.make(place.dsn, "items", rows)
    table: dict[str, Any] = {"dsn": place.dsn, "rows": rows}
    sides = {
        "ours": Side("bench.snapshot:tidemark", {**table, "lake": place.new_folder("lake")}),
        "other": Side("bench.debezium:snapshot", {**table, "folder": place.new_folder("debezium")}),
    }
    found = contest(sides, place.runs)
    yield rates(f"snapshot / Debezium {VERSION}", found["ours"], found["other"], "rows/s")


class _Counting(IcebergChangeHandlerV2):  # type: ignore[misc, unused-ignore]
    """Tells when so many records are committed."""

    def __init__(self, wanted: int, **options: Any) -> None:
        super().__init__(**options)
        self.left = wanted
        self.began = threading.Event()
        self.done = threading.Event()

    def handleJsonBatch(self, records: Any) -> None:  # noqa: N802  # Debezium's name
        self.began.set()
        super().handleJsonBatch(records)
        self.left -= len(records)
        if self.left <= 0:
            self.done.set()


def debezium(dsn: str, slot: str, until: int, rows: int, folder: str) -> Iterator[Run]:  # noqa: ARG001  # it counts
    """Streaming only, from a copy of the slot, in large batches; its time begins with the first of them."""
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
        items.copy_slot(dsn, slot, copy)
        yield _landed(catalog, number, rows, {**_properties(dsn, folder, number), **streaming})


def snapshot(dsn: str, rows: int, folder: str) -> Iterator[Run]:
    """The initial snapshot only, by as many threads as we have readers; timed likewise."""
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
        yield _landed(catalog, number, rows, {**_properties(dsn, folder, number), **reading})
        items.drop_slots(dsn)


def _catalog(folder: str) -> SqlCatalog:
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def _landed(catalog: SqlCatalog, number: int, rows: int, properties: Mapping[str, object]) -> Run:
    """One run of the engine, into tables of its own."""
    catalog.create_namespace(f"raw{number}")
    handler = _Counting(rows, catalog=catalog, destination_namespace=(f"raw{number}",))
    engine = DebeziumEngine(properties={key: str(value) for key, value in properties.items()}, handler=handler)
    running = threading.Thread(target=_run, args=[engine], daemon=True)
    running.start()
    assert handler.began.wait(120), "nothing has come"
    with stopwatch() as run:
        assert handler.done.wait(600), f"{handler.left} of {rows} events are missing"
    engine.close()
    running.join(60)
    run.amount = rows
    return run


def _run(engine: Any) -> None:
    with suppress(Exception):  # closing it interrupts what it does
        engine.run()


def _properties(dsn: str, folder: str, number: int) -> dict[str, object]:
    given = conninfo_to_dict(dsn)
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": given["host"],
        "database.port": given["port"],
        "database.user": given["user"],
        "database.dbname": given["dbname"],
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
