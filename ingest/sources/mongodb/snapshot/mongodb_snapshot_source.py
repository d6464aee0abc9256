"""Collections for the snapshotter: plans snapshots, determines their clusterTime, reads chunks.

All chunks are read at one clusterTime while the servers keep its history (minSnapshotHistoryWindowInSeconds); later
chunks are read at a later one. Documents do not move between ranges of `_id`, so none is missed.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from pymongo.errors import OperationFailure, PyMongoError

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource
from ingest.lake import Chunk, Folder, Lake, SourceTable
from ingest.snapshot.chunk_planning import chunk_count, min_read_lsn
from ingest.snapshot.chunk_task import NO_SNAPSHOT, Task
from ingest.snapshot.executor_reads import ChunkReader, chunk_outcome
from ingest.snapshot.snapshot_source import Bounds, ChunkOutcome, SnapshotPlan, SourceUnavailable
from ingest.sources.mongodb import collection_catalog, mongodb_connection, mongodb_server, raw_cursor
from ingest.sources.mongodb import stream_scope as scopes
from ingest.sources.mongodb.change_stream.change_stream_feed import check_deployment
from ingest.sources.mongodb.collection_catalog import Collection
from ingest.sources.mongodb.collection_sync import CatalogSync
from ingest.sources.mongodb.mongodb_connection import Client
from ingest.sources.mongodb.snapshot import collection_chunk_reader
from ingest.sources.mongodb.stream_scope import StreamScope

_log = logging.getLogger(__name__)

# Sampled `_id`s per chunk boundary; more samples give chunks of more even size.
_SAMPLES = 20
# MaxKey; no range begins with it, see `collection_chunk_reader`.
_LAST = '{"$maxKey":1}'


class MongoCollections:
    """The collections of one source. scope: of its stream."""

    has_partial_updates: ClassVar[bool] = False

    def __init__(self, lake: Lake, source: MongoSource, settings: JobSettings, scope: StreamScope) -> None:
        self._lake = lake
        self._source = source
        self._settings = settings
        self._uri = source.uri.get_secret_value()
        self._level = scope.level
        self._catalog_sync = CatalogSync(lake, source, scope)
        self._client: Client | None = None
        self._read_time: int | None = None
        self._weights: dict[str, int] = {}
        self._reader = ChunkReader(
            lake.spark, "ingest.sources.mongodb.snapshot.collection_chunk_reader", self._uri, settings
        )

    def sync_catalog(self) -> None:
        """See `SnapshotSource`."""
        with self._reachable() as client:
            self._catalog_sync.sync_all(client)

    def plan(self, queued: Sequence[SourceTable], *, patient: bool = True) -> list[SnapshotPlan]:  # noqa: ARG002
        """See `SnapshotSource`. Never waits."""
        with self._reachable() as client:
            read_time = self._read_time = mongodb_server.operation_time(client)
            planned = [
                self._planned(client, read_time, table) for table in queued if table.table_id in self._catalog_sync.seen
            ]
            return [plan for plan in planned if plan]

    def ineligibility_reason(self, table: SourceTable) -> str:
        """See `SnapshotSource`. A dropped collection has no reason: its generation will end."""
        return self._catalog_sync.ineligible.get(table.table_id, "")

    def estimated_bytes(self, table: SourceTable, chunk: Chunk) -> int:  # noqa: ARG002  # of all chunks of a table the same
        """See `SnapshotSource`."""
        return self._weights.get(table.table_id, self._settings.snapshot_chunk_bytes)

    def requires_single_snapshot(self, table: SourceTable) -> bool:  # noqa: ARG002
        """See `SnapshotSource`. Every document has its `_id`."""
        return False

    def read(self, chunks: Sequence[tuple[SourceTable, Chunk]], folder: Folder) -> Iterator[ChunkOutcome]:
        """See `SnapshotSource`."""
        if self._read_time is None:
            with self._reachable() as client:
                self._read_time = mongodb_server.operation_time(client)
        if any(table.table_id not in self._catalog_sync.seen for table, _ in chunks):
            self.sync_catalog()  # another process may have started a snapshot of a collection created since
        claimed = {(chunk.snapshot_id, chunk.chunk): chunk for _, chunk in chunks}
        tasks = []
        for table, chunk in chunks:
            collection = self._catalog_sync.seen.get(table.table_id)
            if collection is None:
                yield ChunkOutcome(chunk, problem="the collection was dropped or renamed", must_restart=True)
            else:
                read_time = max(self._read_time, min_read_lsn(table, chunk))
                tasks.append((self.estimated_bytes(table, chunk), _task(table, chunk, collection, read_time, folder)))
        for result in self._reader.read(tasks):
            if result.problem == NO_SNAPSHOT:
                self.release_resources()
            yield chunk_outcome(result, claimed[result.snapshot_id, result.chunk])

    def emit_marker(self) -> int:
        """See `SnapshotSource`."""
        with self._reachable() as client:
            return mongodb_server.emit_marker(client, self._level)

    def release_resources(self) -> None:
        """See `SnapshotSource`: the next chunks are read at a new clusterTime."""
        self._read_time = None

    def cancel(self) -> None:
        """See `SnapshotSource`. Nothing to cancel."""

    def close(self) -> None:
        """See `SnapshotSource`."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @contextmanager
    def _reachable(self) -> Iterator[Client]:
        """The client. Within it, connection errors become `SourceUnavailable`."""
        try:
            if self._client is None:
                client = mongodb_connection.connect(self._uri, self._settings.connect_timeout_seconds)
                self._check(client)
                self._client = client
            yield self._client
        except mongodb_connection.CannotConnect as error:
            raise SourceUnavailable(error.what, error.where, error.fix) from None
        except PyMongoError as error:
            if not mongodb_connection.is_transient(error):
                raise
            raise SourceUnavailable(
                f"MongoDB does not answer ({mongodb_connection.describe_error(error)})",
                mongodb_connection.describe_endpoint(self._uri),
            ) from None

    def _check(self, client: Client) -> None:
        """Raises Failure for another deployment, on which all registered collections would seem to be dropped."""
        try:
            if stored := scopes.stored_position(self._lake, self._source):
                system = mongodb_server.identify_deployment(client, mongodb_connection.describe_endpoint(self._uri))
                check_deployment(stored, system, mongodb_server.operation_time(client), self._source)
        except BaseException:
            client.close()
            raise

    def _planned(self, client: Client, read_time: int, table: SourceTable) -> SnapshotPlan | None:
        """None: it can't be planned; the next catalog sync logs the reason."""
        try:
            return SnapshotPlan(table, read_time, self._chunks(client, self._catalog_sync.seen[table.table_id], table))
        except OperationFailure as error:
            if mongodb_connection.is_transient(error):
                raise
            _log.warning("%s can't be planned (%s)", table.table_name, mongodb_connection.describe_error(error))
            return None

    def _chunks(self, client: Client, collection: Collection, table: SourceTable) -> tuple[Bounds, ...]:
        """Ranges of `_id` with about the same number of documents, by a sample in index order."""
        size = collection_catalog.size(client, collection)
        count = chunk_count(size, self._settings)
        self._weights[table.table_id] = size // count
        bounds: list[str | None] = [None]
        if count > 1:
            bounds += _boundaries(client, collection, count)
        partition_id = table.partitions[0].partition_id
        return tuple((partition_id, lower, upper) for lower, upper in zip(bounds, [*bounds[1:], None], strict=True))


def _boundaries(client: Client, collection: Collection, count: int) -> list[str]:
    """The `_id`s, as JSON, that divide a collection into `count` ranges; fewer if it has fewer documents, or `_id`s
    that JSON does not hold exactly.
    """
    pipeline = [{"$sample": {"size": count * _SAMPLES}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    command = {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}}
    with client.start_session() as session:
        replies = raw_cursor.replies(client, session, collection.database, command)
        bounds = [collection_chunk_reader.bound_of(document) for reply in replies for document in reply]
    sample = [key for key in dict.fromkeys(bounds) if key is not None and key != _LAST]
    places = sorted({number * len(sample) // count for number in range(1, count)} - {0})
    return [sample[place] for place in places]


def _task(table: SourceTable, chunk: Chunk, collection: Collection, read_time: int, folder: Folder) -> Task:
    return {
        "source": table.source,
        "table_name": table.table_name,
        "table_id": table.table_id,
        "partition_id": chunk.partition_id,
        "snapshot_id": chunk.snapshot_id,
        "chunk": chunk.chunk,
        "attempt": chunk.attempt,
        "snapshot_lsn": table.snapshot_lsn,
        "read_lsn": read_time,
        "lower": chunk.lower_bound,
        "upper": chunk.upper_bound,
        "uuid": str(collection.uuid),
        "folder": folder.root,
        "largest_row": folder.largest_row,
    }
