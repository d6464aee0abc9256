"""Reads a chunk of a collection on a Spark executor into a Parquet file.

A chunk is a range of the index on `_id`, of any BSON types, read at one clusterTime. After the read the collection's
UUID must still be the registered one.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import bson
import bsonjs
import pyarrow as pa
from bson.errors import BSONError
from bson.max_key import MaxKey
from pymongo.errors import PyMongoError

from ingest.common.errors import TidemarkError
from ingest.common.records import SNAPSHOT_ROWS
from ingest.lake.parquet_files import Folder, Sink
from ingest.snapshot.chunk_task import (
    CHANGED,
    FAILED,
    FORBIDDEN,
    NO_SNAPSHOT,
    UNREACHABLE,
    ChunkResult,
    SnapshotRows,
    Task,
)
from ingest.sources.mongodb import mongodb_connection, mongodb_server, raw_cursor
from ingest.sources.mongodb.bson import documents, elements
from ingest.sources.mongodb.bson.documents import DocumentBatch
from ingest.sources.mongodb.cluster_time import to_timestamp
from ingest.sources.mongodb.mongodb_connection import Client

# Documents decoded at once; small enough for the CPU cache.
_READ_AT_ONCE = 2000


def read_chunk(uri: str, task: Task, connect_timeout_seconds: float) -> ChunkResult:
    """Read one chunk into its file. An error of the source is not raised, but is the result's problem.

    task: the column values that all rows of raw.snapshot_rows share; `lower`, `upper` (JSON of `_id`), `uuid`,
    `folder`, `largest_row`.
    """
    snapshot_id, chunk = task["snapshot_id"], task["chunk"]
    sink = Sink(Folder(task["folder"], task["largest_row"]), SNAPSHOT_ROWS, f"{snapshot_id}-{chunk}.parquet")
    try:
        with mongodb_connection.connect(uri, connect_timeout_seconds) as client:
            rows = SnapshotRows(task, datetime.now(timezone.utc))
            for batch in _batches(client, task):
                _write(sink, rows, batch)
            is_same = _uuid(client, task["table_name"]) == UUID(task["uuid"])
        file = sink.close()
        if not is_same or not file.rows:
            sink.discard()
        if not is_same:
            return ChunkResult(snapshot_id, chunk, problem=CHANGED, detail="the collection was dropped or renamed")
        path = file.path if file.rows else None
        return ChunkResult(snapshot_id, chunk, path, file.rows, file.size, task["read_lsn"])
    except BaseException as error:
        sink.discard()
        if not isinstance(error, TidemarkError | ValueError | BSONError | PyMongoError):
            raise
        detail = mongodb_connection.describe_error(error) if isinstance(error, PyMongoError) else str(error)
        return ChunkResult(snapshot_id, chunk, problem=_kind(error), detail=detail)


def _write(sink: Sink, rows: SnapshotRows, batch: Sequence[bytes]) -> None:
    """Write a reply as one row group."""
    parts = []
    for first in range(0, len(batch), _READ_AT_ONCE):
        read = DocumentBatch(batch[first : first + _READ_AT_ONCE])
        parts.append(rows.table(read.row_keys(), read.columns()))
    if parts:
        sink.write(pa.concat_tables(parts))


def bound_of(document: bytes) -> str | None:
    """The `_id` of a document as a chunk bound; None if its JSON is not read back as the same bytes.

    Bounds in another order than the index would omit documents.
    """
    try:
        text = documents.json_text(documents.parse(document)["_id"])
        read = bson.encode(_bound(text), codec_options=mongodb_connection.EXACT)
    except (ValueError, TypeError, BSONError):
        return None
    return text if elements.value(read, b"_id") == elements.value(document, b"_id") else None


def _bound(text: str) -> dict[str, Any]:
    return bson.decode(bsonjs.loads(f'{{"_id": {text}}}'), mongodb_connection.EXACT)


def _batches(client: Client, task: Task) -> Iterator[list[bytes]]:
    """The documents, reply by reply."""
    command: dict[str, Any] = {"hint": {"_id": 1}}
    for bound, value in (("min", task["lower"]), ("max", task["upper"])):
        if value is not None:
            command[bound] = _bound(value)
    if task["lower"] is not None and task["upper"] is None:
        # A range with a lower bound alone ends before MaxKey, which may be an `_id`.
        yield from _find(client, task, {**command, "max": {"_id": MaxKey()}})
        command = {"filter": {"_id": MaxKey()}}
    yield from _find(client, task, command)


def _find(client: Client, task: Task, find: dict[str, Any]) -> Iterator[list[bytes]]:
    database, _, name = task["table_name"].partition(".")
    read_concern = {"level": "snapshot", "atClusterTime": to_timestamp(task["read_lsn"])}
    with client.start_session() as session:
        yield from raw_cursor.replies(client, session, database, {"find": name, **find, "readConcern": read_concern})


def _uuid(client: Client, full_name: str) -> UUID | None:
    database, _, name = full_name.partition(".")
    entries = mongodb_server.list_entries(client, database, filter={"name": name})
    return mongodb_server.collection_uuid(entries[0]) if entries else None


def _kind(error: Exception) -> str:
    if isinstance(error, mongodb_connection.CannotConnect):
        return UNREACHABLE
    code = mongodb_connection.error_code(error) if isinstance(error, PyMongoError) else None
    if code == mongodb_connection.UNAUTHORIZED:
        return FORBIDDEN
    if code in mongodb_connection.SNAPSHOT_TOO_OLD:
        return NO_SNAPSHOT
    if code == mongodb_connection.NAMESPACE_NOT_FOUND:
        return CHANGED
    return UNREACHABLE if isinstance(error, PyMongoError) and mongodb_connection.is_transient(error) else FAILED
