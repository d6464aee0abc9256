"""A MongoDB writer's stream as `EventBatch`es: checks where it may start, reads, decodes, looks documents up.

`open_writer` finds out the stream's scope and stores the first position, so that `MongoFeed` finds it.
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
from ingest.lake.source_tables import ENDED, QUEUED
from ingest.positions.position import Position
from ingest.sources.mongodb import cluster_time, mongodb_connection, mongodb_server, raw_cursor
from ingest.sources.mongodb import stream_scope as scopes
from ingest.sources.mongodb.bson import elements
from ingest.sources.mongodb.bson.documents import Documents
from ingest.sources.mongodb.bson.elements import Value
from ingest.sources.mongodb.change_stream.change_decoder import LOOKED_UP_BYTES, Decoder
from ingest.sources.mongodb.change_stream.change_events import Namespace
from ingest.sources.mongodb.change_stream.change_stream_reader import Reader
from ingest.sources.mongodb.mongodb_connection import Client
from ingest.sources.mongodb.stream_scope import Scope

_log = logging.getLogger(__name__)
# The jobs of a source that fails come here with each new attempt.
_states = StateLog(_log)


def open_writer(lake: Lake, source: MongoSource, settings: JobSettings) -> Position:
    """Where the writer goes on.

    On the first time, and when the stream is of another level: from now, with new snapshots of all that there is. When
    it selects others: from where it was, with new snapshots of those. Raises Failure for another deployment, or one
    whose log is behind.
    """
    system, scope, now = _ask(source, settings)
    stored = scopes.stored(lake, source)
    begun = Position(source.name, scopes.WRITER, scope.slot, system, 1, now, now)
    if stored is not None:
        check_deployment(stored, system, now, source)
        if stored.slot == scope.slot:
            landed = cluster_time.readable(stored.position)
            _states.log_change(source.name, f"source {source.name}: all is landed up to {landed}")
            return stored
        _log.warning("source %s: the stream is of %s now, before of %s", source.name, scope.slot, stored.slot)
        before = Scope.of(stored.slot)
        # Of one that has not moved yet, the next would not be told apart by where they begin.
        if before.level == scope.level and stored.position > stored.start_position:
            scopes.select_anew(lake, source, before, scope, stored.position)
            begun = replace(begun, start_position=stored.position, position=stored.position, token=stored.token)
        else:
            lake.tables.queue_snapshots(source.name, "the stream is another one")
    # Another process may begin at this moment as well; the stream is one.
    lake.register_start_position(begun, stored.start_position if stored else -1)
    scopes.confirm(lake, source, scope)
    found = scopes.stored(lake, source)
    assert found is not None
    return found


def start_over(lake: Lake, source: MongoSource, settings: JobSettings) -> None:
    """A new beginning: the stream goes on from now, and all collections are queued. Raises Failure if the log is behind
    what is landed.
    """
    system, scope, now = _ask(source, settings)
    stored = scopes.stored(lake, source)
    if stored is not None and now < stored.position:
        raise _behind(stored, now, source)
    lake.tables.queue_snapshots(source.name, "the log was lost")
    lake.store_position(Position(source.name, scopes.WRITER, scope.slot, system, 1, now, now))


def _ask(source: MongoSource, settings: JobSettings) -> tuple[str, Scope, int]:
    """The deployment's name, what a stream of it is to be of, and the position now."""
    uri = source.uri.get_secret_value()
    with mongodb_connection.client(uri, settings.connect_timeout_seconds) as client:
        system = mongodb_server.identify(client, mongodb_connection.place(uri))
        return system, Scope(stream_level(client, source), source.collections), mongodb_server.operation_time(client)


def stream_level(client: Client, source: MongoSource) -> str:
    """`cluster`, or the database where the role may open a stream of that alone. Raises Failure if of neither."""
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
        "Grant find and changeStream on {db: '', collection: ''}, or make a source of each database",
    )


def _probe(client: Client, level: str) -> None:
    database, stage = mongodb_server.stream_of(client, level, **mongodb_server.STREAM)
    with client.start_session() as session:
        command = {"aggregate": 1, "pipeline": [stage], "cursor": {"batchSize": 0}}
        cursor = database.command(command, session=session)["cursor"]
        database.command({"killCursors": "$cmd.aggregate", "cursors": [cursor["id"]]}, session=session)


def _not_opened(error: PyMongoError, source: MongoSource) -> Failure:
    grant = "Grant find and changeStream on {db: '', collection: ''}"
    version = "MongoDB 6.0 is needed, and its featureCompatibilityVersion: setFeatureCompatibilityVersion"
    return Failure(
        f"no change stream can be opened ({mongodb_connection.said(error)})",
        f"source {source.name}",
        grant if mongodb_connection.code(error) == mongodb_connection.UNAUTHORIZED else version,
    )


def check_deployment(stored: Position, system: str, now: int, source: MongoSource) -> None:
    """Raises Failure if the deployment called `system`, which stands at `now`, is not the one whose log is stored."""
    if not mongodb_server.is_same(stored.system_id, system):
        raise Failure(
            f"this is another deployment ({system}; the lake is of {stored.system_id})",
            f"source {source.name}",
            "Correct uri in sources.yml, or give the source another name",
        )
    if now < stored.position:
        raise _behind(stored, now, source)


def _behind(stored: Position, now: int, source: MongoSource) -> Failure:
    return Failure(
        f"the deployment stands at {cluster_time.readable(now)}, behind what is landed "
        f"({cluster_time.readable(stored.position)}): it was set back",
        f"source {source.name}",
        "Give it another name in sources.yml, so that it is another source",
    )


class _GivenUp(Exception):
    """The source couldn't be reached, and nobody waits for it any longer."""


class MongoFeed:
    """The batches of the writer. Made with what `open_writer` gave; `start` it, `read` until done, `stop`.

    queued: called from `read` when the stream showed that a collection was made, dropped or renamed.
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
        self._given_up = False
        self._repeats = Repeats(_log)
        self._decoder = Decoder(source.name, position.writer, source.selects, self._look_up, queued, self._renamed)
        self._reader = Reader(position, self._connect, settings.heartbeat_seconds)

    def start(self) -> None:
        """Begin to read from the stored position."""
        self._reader.start()

    def read(self, timeout: float) -> EventBatch | None:
        """What came next; None: nothing within `timeout` seconds. Raises Failure when there is no going on."""
        try:
            while not self._given_up:
                if (batch := next(self._batches, None)) is not None:
                    return batch
                reply = self._reader.get(timeout)
                if reply is None:
                    return None
                self._batches = self._decoder.feed(reply)
        except _GivenUp:
            self._given_up = True
        return None

    def acknowledge(self, position: Position) -> None:
        """Nothing: MongoDB keeps its log by time and size, not for us."""

    def cancel(self) -> None:
        """What waits for the source gives up."""
        self._cancelled.set()

    def prepare_commit(self) -> bool:
        """Nothing to look at: an event names its collection by itself."""
        return True

    def finish(self) -> None:
        """Read no more; what was read may still be taken."""
        self._reader.finish()

    def stop(self) -> None:
        """End."""
        self._reader.finish()
        if self._reader.is_alive():
            self._reader.join(timeout=10)
        if self._client is not None:
            self._client.close()

    def _connect(self) -> Client:
        return mongodb_connection.client(self._uri, self._seconds)

    def _renamed(self, table_id: str, at: int) -> None:
        """A collection has got a name at a position. If it had that before, its rows were taken away when it left."""
        while known := self._lake.tables.read(self._source).get(table_id):
            if known.state in (ENDED, QUEUED) or (known.snapshot_lsn or 0) > at:
                return
            if self._lake.tables.upsert(
                self._source, [known.with_snapshot_queued("it was renamed, and has its name again")]
            ):
                return

    def _look_up(self, namespace: Namespace, identifiers: Sequence[Value], at: int) -> Mapping[str, bytes] | None:
        """See `LookUp`. Asks again for as long as the deployment can't be reached."""
        database, name = namespace
        while True:
            try:
                found = self._found(namespace, identifiers, at)
                self._repeats.over(f"source {self._source}: documents can be looked up again")
                return found
            except (PyMongoError, mongodb_connection.CannotConnect) as error:
                if isinstance(error, PyMongoError) and not mongodb_connection.passes(error):
                    raise Failure(
                        f"documents of {database}.{name} can't be looked up ({mongodb_connection.said(error)})",
                        "the change stream",
                        "Grant find on it, or let it keep post-images",
                    ) from error
                message = f"source {self._source}: documents can't be looked up at the moment ({error})"
                self._repeats.occurred(message, key="look up")
                if self._cancelled.wait(1.0):
                    raise _GivenUp from error

    def _found(self, namespace: Namespace, identifiers: Sequence[Value], at: int) -> Mapping[str, bytes] | None:
        """The documents as a majority has them, on a member that is no further behind than the stream."""
        self._client = self._client or self._connect()
        found: list[bytes] = []
        size = 0
        database, name = namespace
        as_of = {"level": "majority", "afterClusterTime": cluster_time.timestamp(at)}
        find = {"find": name, "filter": elements.one_of(identifiers), "readConcern": as_of}
        with self._client.start_session() as session:
            if self._reader.cluster_time is not None:
                session.advance_cluster_time(self._reader.cluster_time)
            for each in chain.from_iterable(raw_cursor.replies(self._client, session, database, find)):
                size += len(each)
                if size > LOOKED_UP_BYTES and len(identifiers) > 1:
                    return None
                found.append(each)
        keys = Documents([elements.document([(b"_id", elements.value(each, b"_id"))]) for each in found]).row_keys()
        return dict(zip(keys.to_pylist(), found, strict=True))
