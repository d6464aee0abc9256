"""The feed of a MongoDB stream writer: checks the start position, reads, decodes, looks up documents.

`open_writer` determines the stream's scope and stores the first position, at which `MongoFeed` starts.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from pymongo.errors import OperationFailure, PyMongoError

from ingest.common.errors import Failure
from ingest.common.log_repeats import Repeats, StateLog
from ingest.common.records import EventBatch
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, has_wildcard, including_patterns
from ingest.lake import Lake
from ingest.lake.source_tables import ENDED
from ingest.positions.position import Position
from ingest.sources.mongodb import cluster_time, mongodb_connection, mongodb_server, raw_cursor
from ingest.sources.mongodb import stream_scope as scopes
from ingest.sources.mongodb.bson import elements
from ingest.sources.mongodb.bson.documents import DocumentBatch
from ingest.sources.mongodb.bson.elements import Value
from ingest.sources.mongodb.change_stream.change_decoder import LOOKED_UP_BYTES, Decoder
from ingest.sources.mongodb.change_stream.change_events import Namespace
from ingest.sources.mongodb.change_stream.change_stream_reader import Reader
from ingest.sources.mongodb.mongodb_connection import Client
from ingest.sources.mongodb.stream_scope import StreamScope

_log = logging.getLogger(__name__)
# Kept here because a failing source's jobs are created again with each attempt.
_states = StateLog(_log)


def open_writer(lake: Lake, source: MongoSource, settings: JobSettings) -> Position:
    """The position at which the writer starts.

    On the first start, and if the stream has another level: the present position, with new snapshots of all
    collections. If it selects other collections: the stored position, with new snapshots of those. Raises Failure for
    another deployment, or one whose log is behind the stored position.
    """
    system, scope, now = _read_deployment(source, settings)
    stored = scopes.stored_position(lake, source)
    first_position = Position(source.name, scopes.WRITER, scope.slot, system, 1, now, now)
    if stored is not None:
        check_deployment(stored, system, now, source)
        if stored.slot == scope.slot:
            committed = cluster_time.format_position(stored.position)
            _states.log_change(source.name, f"source {source.name}: everything before {committed} is committed")
            return stored
        _log.warning("source %s: the stream's scope is now %s, before %s", source.name, scope.slot, stored.slot)
        before = StreamScope.parse(stored.slot)
        # An epoch is identified by its start position, so one that has not advanced can't be followed at its position.
        if before.level == scope.level and stored.position > stored.start_position:
            scopes.change_selection(lake, source, before, scope, stored.position)
            first_position = replace(
                first_position, start_position=stored.position, position=stored.position, token=stored.token
            )
        else:
            lake.tables.queue_snapshots(source.name, "the level of the change stream has changed")
    # Another process may start at the same time; only one of the two positions is stored.
    lake.positions.register_start(first_position, stored.start_position if stored else -1)
    scopes.check_scope(lake, source, scope)
    registered = scopes.stored_position(lake, source)
    assert registered is not None
    return registered


def start_over(lake: Lake, source: MongoSource, settings: JobSettings) -> None:
    """Reset the stream to the present position and queue all collections.

    Raises Failure if the log is behind the stored position.
    """
    system, scope, now = _read_deployment(source, settings)
    stored = scopes.stored_position(lake, source)
    if stored is not None and now < stored.position:
        raise _behind(stored, now, source)
    lake.tables.queue_snapshots(source.name, "the log was lost")
    lake.positions.store(Position(source.name, scopes.WRITER, scope.slot, system, 1, now, now))


def _read_deployment(source: MongoSource, settings: JobSettings) -> tuple[str, StreamScope, int]:
    """The deployment's name, the configured scope, and the present position."""
    uri = source.uri.get_secret_value()
    with mongodb_connection.connect(uri, settings.connect_timeout_seconds) as client:
        system = mongodb_server.identify_deployment(client, mongodb_connection.describe_endpoint(uri))
        return (
            system,
            StreamScope(stream_level(client, source), source.collections),
            mongodb_server.operation_time(client),
        )


def stream_level(client: Client, source: MongoSource) -> str:
    """`cluster`, or the database if the role may open a stream of that only. Raises Failure if it may open neither."""
    try:
        _probe(client, mongodb_server.CLUSTER)
    except OperationFailure as error:
        if error.code != mongodb_connection.UNAUTHORIZED:
            raise _not_opened(error, source) from None
    else:
        return mongodb_server.CLUSTER
    databases = {pattern.partition(".")[0] for pattern in including_patterns(source.collections)}
    (database,) = databases if len(databases) == 1 else ("",)
    try:
        if database and not has_wildcard(database):
            _probe(client, database)
            return database
    except OperationFailure as error:
        raise _not_opened(error, source) from None
    raise Failure(
        "the role may not open a change stream of the whole deployment, and the collections are in several databases",
        f"source {source.name}",
        "Grant find and changeStream on {db: '', collection: ''}, or configure one source per database",
    )


def _probe(client: Client, level: str) -> None:
    database, stage = mongodb_server.watch_target(client, level, **mongodb_server.STREAM)
    with client.start_session() as session:
        command = {"aggregate": 1, "pipeline": [stage], "cursor": {"batchSize": 0}}
        cursor = database.command(command, session=session)["cursor"]
        database.command({"killCursors": "$cmd.aggregate", "cursors": [cursor["id"]]}, session=session)


def _not_opened(error: PyMongoError, source: MongoSource) -> Failure:
    grant = "Grant find and changeStream on {db: '', collection: ''}"
    version = "MongoDB 6.0 is needed, and its featureCompatibilityVersion: setFeatureCompatibilityVersion"
    return Failure(
        f"no change stream can be opened ({mongodb_connection.describe_error(error)})",
        f"source {source.name}",
        grant if mongodb_connection.error_code(error) == mongodb_connection.UNAUTHORIZED else version,
    )


def check_deployment(stored: Position, system: str, now: int, source: MongoSource) -> None:
    """Raises Failure if `system`, whose log is at `now`, is another deployment than the stored position's."""
    if not mongodb_server.is_same_deployment(stored.system_id, system):
        raise Failure(
            f"the uri leads to another deployment ({system}; the lake has {stored.system_id})",
            f"source {source.name}",
            "Correct uri in sources.yml, or give the source another name",
        )
    if now < stored.position:
        raise _behind(stored, now, source)


def _behind(stored: Position, now: int, source: MongoSource) -> Failure:
    return Failure(
        f"the deployment's log is at {cluster_time.format_position(now)}, behind the stored position "
        f"({cluster_time.format_position(stored.position)}): it was restored to an earlier point in time",
        f"source {source.name}",
        "Give the source another name in sources.yml, so that it is replicated as a new source",
    )


class _Cancelled(Exception):
    """The feed was cancelled while the source could not be reached."""


class MongoFeed:
    """The feed of the writer. Call `start`, `read` until done, then `stop`.

    position: of `open_writer`. queued: called from `read` when a collection was created, dropped or renamed.
    """

    def __init__(
        self,
        lake: Lake,
        source: MongoSource,
        settings: JobSettings,
        position: Position,
        queued: Callable[[], None] = lambda: None,
    ) -> None:
        self._lake = lake
        self._source = source.name
        self._uri = source.uri.get_secret_value()
        self._seconds = settings.connect_timeout_seconds
        self._client: Client | None = None
        self._batches: Iterator[EventBatch] = iter(())
        self._cancelled = threading.Event()
        self._is_cancelled = False
        self._repeats = Repeats(_log)
        self._decoder = Decoder(
            source.name, position.writer, source.selects, self._look_up, queued, self._requeue_renamed
        )
        self._reader = Reader(position, self._connect, settings.heartbeat_seconds)

    def start(self) -> None:
        """Start reading at the stored position."""
        self._reader.start()

    def read(self, timeout: float) -> EventBatch | None:
        """The next batch; None: nothing within `timeout` seconds. Raises Failure if the stream can't continue."""
        try:
            while not self._is_cancelled:
                if (batch := next(self._batches, None)) is not None:
                    return batch
                reply = self._reader.get(timeout)
                if reply is None:
                    return None
                self._batches = self._decoder.feed(reply)
        except _Cancelled:
            self._is_cancelled = True
        return None

    def acknowledge(self, position: Position) -> None:
        """Nothing: MongoDB keeps its log by time and size, not for us."""

    def cancel(self) -> None:
        """End all waiting for the source."""
        self._cancelled.set()

    def prepare_commit(self) -> bool:
        """Nothing to do: an event contains the identity of its collection."""
        return True

    def finish(self) -> None:
        """Stop reading; `read` still returns what was received."""
        self._reader.finish()

    def stop(self) -> None:
        """End."""
        self._reader.finish()
        if self._reader.is_alive():
            self._reader.join(timeout=10)
        if self._client is not None:
            self._client.close()

    def _connect(self) -> Client:
        return mongodb_connection.connect(self._uri, self._seconds)

    def _requeue_renamed(self, table_id: str, position: int) -> None:
        """Queues a collection that was renamed at `position` if it had this name before: its rows were removed.

        Also one that is queued: a snapshotter that has just planned its snapshot plans it again.
        """
        while row := self._lake.tables.read(self._source).get(table_id):
            if row.state == ENDED or (row.snapshot_lsn or 0) > position:
                return
            if self._lake.tables.upsert(self._source, [row.with_snapshot_queued("it was renamed and renamed back")]):
                return

    def _look_up(
        self, namespace: Namespace, identifiers: Sequence[Value], read_time: int
    ) -> Mapping[str, bytes] | None:
        """See `LookUp`. Retries while the deployment can't be reached."""
        database, name = namespace
        while True:
            try:
                documents = self._find_documents(namespace, identifiers, read_time)
                self._repeats.over(f"source {self._source}: documents can be looked up again")
                return documents
            except (PyMongoError, mongodb_connection.CannotConnect) as error:
                if isinstance(error, PyMongoError) and not mongodb_connection.is_transient(error):
                    reason = mongodb_connection.describe_error(error)
                    raise Failure(
                        f"documents of {database}.{name} can't be looked up ({reason})",
                        "the change stream",
                        "Grant find on it, or let it keep post-images",
                    ) from error
                message = f"source {self._source}: documents can't be looked up at the moment ({error})"
                self._repeats.occurred(message, key="look up")
                if self._cancelled.wait(1.0):
                    raise _Cancelled from error

    def _find_documents(
        self, namespace: Namespace, identifiers: Sequence[Value], read_time: int
    ) -> Mapping[str, bytes] | None:
        """The documents with read concern majority, on a member that is not behind the stream."""
        self._client = self._client or self._connect()
        documents: list[bytes] = []
        size = 0
        database, name = namespace
        as_of = {"level": "majority", "afterClusterTime": cluster_time.to_timestamp(read_time)}
        find = {"find": name, "filter": elements.one_of(identifiers), "readConcern": as_of}
        with self._client.start_session() as session:
            if self._reader.cluster_time is not None:
                session.advance_cluster_time(self._reader.cluster_time)
            for document in chain.from_iterable(raw_cursor.replies(self._client, session, database, find)):
                size += len(document)
                if size > LOOKED_UP_BYTES and len(identifiers) > 1:
                    return None
                documents.append(document)
        keys = DocumentBatch(
            [elements.document([(b"_id", elements.value(document, b"_id"))]) for document in documents]
        ).row_keys()
        return dict(zip(keys.to_pylist(), documents, strict=True))
