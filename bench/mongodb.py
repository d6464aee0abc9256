"""MongoDB into the raw tables, against plain PyMongo loops over raw BSON that discard the documents."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from bson.raw_bson import RawBSONDocument
from pydantic import SecretStr
from pymongo import MongoClient

from bench import ingest_runs
from bench.environment import Environment, open_lake
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_rates
from bench.runner import Side, run_in_turns
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource
from ingest.positions.position import Position
from ingest.sources.mongodb import cluster_time, mongodb_server
from ingest.sources.mongodb.mongodb_connection import connect as connect_mongodb
from ingest.sources.mongodb.mongodb_connection import describe_endpoint
from ingest.sources.mongodb.mongodb_source import open_jobs
from ingest.sources.mongodb.stream_scope import WRITER, StreamScope

DATABASE = "bench"
DOCUMENTS, CHANGES = 2_000_000, 300_000
SNAPSHOT_MARK, STREAM_MARK = 0.3, 0.5
_BATCH = 5000


def results(environment: Environment) -> Iterator[Result]:
    """Measures the snapshot of a collection, then a change stream of inserts."""
    uri = environment.mongodb.uri
    documents, changes = environment.sized(DOCUMENTS), environment.sized(CHANGES)
    with connect_mongodb(uri, 10.0) as client:
        _insert(client[DATABASE]["items"], documents)
        start = mongodb_server.operation_time(client)
        _insert(client[DATABASE]["changes"], changes)
        until = mongodb_server.emit_marker(client, mongodb_server.CLUSTER)
    part: dict[str, Any] = {"uri": uri, "documents": documents}
    sides = {
        "ours": Side("bench.mongodb:tidemark_snapshot", {**part, "lake": environment.new_folder("lake")}),
        "other": Side("bench.mongodb:bare_find", part),
    }
    runs = run_in_turns(sides, environment.runs)
    yield compare_rates("mongodb.snapshot / find", runs["ours"], runs["other"], "documents/s", SNAPSHOT_MARK)
    part = {"uri": uri, "start": start, "changes": changes}
    sides = {
        "ours": Side("bench.mongodb:tidemark_stream", {**part, "until": until, "lake": environment.new_folder("lake")}),
        "other": Side("bench.mongodb:bare_watch", part),
    }
    runs = run_in_turns(sides, environment.runs)
    yield compare_rates("mongodb.stream / watch", runs["ours"], runs["other"], "events/s", STREAM_MARK)


def _insert(collection: Any, count: int) -> None:
    for first in range(0, count, _BATCH):
        collection.insert_many([_document(i) for i in range(first, min(first + _BATCH, count))], ordered=False)


def _document(i: int) -> dict[str, Any]:
    return {
        "_id": i,
        "customer": i * 7919 % 50_000,
        "status": ("new", "paid", "sent", "returned")[i % 4],
        "amount": i % 100_000 / 100,
        "quantity": i % 10,
        "weight": i / 7 if i % 5 else None,
        "active": i % 3 == 0,
        "email": f"user{i % 50_000}@example.com",
        "note": f"note {i * 2654435761 % 2**64:032x}",
        "tags": ["a", "b", f"t{i % 100}"],
        "address": {"street": f"{i % 100} Main Street", "city": f"city {i % 1000}"},
    }


def tidemark_snapshot(uri: str, documents: int, lake: str) -> Iterator[Run]:
    """Runs a snapshotter from the queued collection until the snapshot is complete."""
    opened = open_lake(lake)
    for number in count():
        source = MongoSource(name=f"items{number}", uri=SecretStr(uri), collections=(f"{DATABASE}.items",))
        yield ingest_runs.run_snapshot(open_jobs(opened, source, JobSettings()), documents)


def tidemark_stream(uri: str, start: int, until: int, changes: int, lake: str) -> Iterator[Run]:
    """Runs a stream writer from a stored position."""
    opened = open_lake(lake)
    for number in count():
        source = MongoSource(name=f"changes{number}", uri=SecretStr(uri), collections=(f"{DATABASE}.changes",))
        with connect_mongodb(uri, 10.0) as client:
            system = mongodb_server.identify_deployment(client, describe_endpoint(uri))
        scope = StreamScope(mongodb_server.CLUSTER, source.collections)
        opened.positions.store(Position(source.name, WRITER, scope.slot, system, 1, start, start))
        yield ingest_runs.run_stream(open_jobs(opened, source, JobSettings()), until, changes)


def bare_find(uri: str, documents: int) -> Iterator[Run]:
    """`for document in find()`."""
    with MongoClient[RawBSONDocument](uri, document_class=RawBSONDocument) as client:
        while True:
            with stopwatch() as run:
                run.amount = sum(1 for _ in client[DATABASE]["items"].find())
            assert run.amount == documents
            yield run


def bare_watch(uri: str, start: int, changes: int) -> Iterator[Run]:
    """`for change in watch()`, from the same position, for `changes` changes."""
    with MongoClient[RawBSONDocument](uri, document_class=RawBSONDocument) as client:
        while True:
            start_time = cluster_time.to_timestamp(start)
            with (
                stopwatch() as run,
                client.watch(start_at_operation_time=start_time, full_document="whenAvailable") as stream,
            ):
                for _ in range(changes):
                    stream.next()
            run.amount = changes
            yield run
