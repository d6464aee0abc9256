"""The thread that reads a change stream ahead of the decoder: puts replies into a bounded queue.

It sends aggregate and getMore itself, for raw BSON and the token of each reply, which PyMongo's change streams do not
expose. After a transient error (network, elections, killed cursors) it opens a new cursor after the last token; any
other error ends the stream.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any

from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from ingest.common.errors import Failure
from ingest.common.log_repeats import Repeats
from ingest.positions.position import Position
from ingest.sources.mongodb import cluster_time, mongodb_connection, mongodb_server, raw_cursor
from ingest.sources.mongodb.bson import elements
from ingest.sources.mongodb.change_stream.change_decoder import Events
from ingest.sources.mongodb.change_stream.change_events import INVALIDATE, Event
from ingest.sources.mongodb.mongodb_connection import Client
from ingest.sources.mongodb.raw_cursor import Reply
from ingest.sources.mongodb.stream_scope import StreamScope

_log = logging.getLogger(__name__)

_AWAIT_MILLISECONDS = 500
SILENCE_SECONDS = 30.0
_LONGEST_PAUSE = 10.0
# How long to wait for the heartbeat that was just written.
_CHECK_SECONDS = 3.0
# Replies of up to 16 MB each.
_REPLIES = 3


@dataclass
class _Cursor:
    """A change stream's cursor on the server, in its own session."""

    database: Database[dict[str, Any]]
    session: ClientSession
    identifier: Int64

    def next(self) -> Reply:
        """The next reply, possibly without events."""
        command = {"getMore": self.identifier, "collection": "$cmd.aggregate", "maxTimeMS": _AWAIT_MILLISECONDS}
        return raw_cursor.ask(self.database, self.session, command)

    def close(self) -> None:
        """Close the cursor on the server."""
        command = {"killCursors": "$cmd.aggregate", "cursors": [self.identifier]}
        self.database.command(command, session=self.session)


class Reader(threading.Thread):
    """Reads a stream from a stored position on.

    connect: returns a connected client. heartbeat_seconds: the time without events before the heartbeat is written.
    """

    def __init__(self, position: Position, connect: Callable[[], Client], heartbeat_seconds: float) -> None:
        super().__init__(name=f"change stream {position.source}", daemon=True)
        self._source = position.source
        self._level = StreamScope.parse(position.slot).level
        self._position = position.position
        self._stored_token = position.token
        self._connect = connect
        self._heartbeat_seconds = heartbeat_seconds
        # Of the newest reply, as the servers tell it one another.
        self.cluster_time: Mapping[str, Any] | None = None
        self._token: RawBSONDocument | None = None
        # Of the newest event that a stream can resume after.
        self._event_token: str | None = None
        self._after_invalidate = False
        self._replies: Queue[Events | BaseException] = Queue(_REPLIES)
        self._ending = threading.Event()
        self._newest = 0
        self._spoke = self._heard = time.monotonic()
        self._has_warned = False
        self._cuts, self._silences = Repeats(_log), Repeats(_log)

    def get(self, timeout: float) -> Events | None:
        """The next reply; None: nothing within `timeout` seconds. Raises the error that ended the stream."""
        try:
            item = self._replies.get(timeout=timeout)
        except Empty:
            self._look_for_silence()
            return None
        if isinstance(item, BaseException):
            raise item
        return item

    def finish(self) -> None:
        """Stop reading; `get` still returns what was received."""
        self._ending.set()

    def _look_for_silence(self) -> None:
        """Report a silent server: a healthy one answers at least twice a second, also without events."""
        if time.monotonic() - self._heard < SILENCE_SECONDS:
            self._silences.over(f"source {self._source}: the deployment answers again")
        else:
            message = f"source {self._source}: the deployment has not answered for {SILENCE_SECONDS:.0f} s"
            self._silences.occurred(message)

    def run(self) -> None:
        """Read until `finish`."""
        pause = 0.0
        while not self._ending.is_set():
            try:
                with self._connect() as client:
                    pause = 0.0
                    self._read(client)
            except (PyMongoError, mongodb_connection.CannotConnect) as error:
                if isinstance(error, PyMongoError) and not mongodb_connection.is_transient(error):
                    self._put(self._failure(error))
                    return
                pause = min(2 * pause + 0.1, _LONGEST_PAUSE)
                message = f"source {self._source}: the change stream was cut ({_said(error)}); reading on"
                self._cuts.occurred(message, key="cut")
                self._ending.wait(pause)
            except BaseException as error:  # noqa: BLE001  # raised by `get`
                self._put(error)
                return

    def _read(self, client: Client) -> None:
        with client.start_session() as session:
            cursor, reply = self._open(client, session)
            while not self._ending.is_set():
                self.cluster_time = session.cluster_time
                if self._take(client, reply):
                    return
                reply = cursor.next()

    def _open(self, client: Client, session: ClientSession) -> tuple[_Cursor, Reply]:
        if self._token is not None:
            # The server accepts a token that names no event even if its log never reached that time.
            if self._event_token is not None and self._event_token != self._token["_data"]:
                self._check(client, session, self._event_token)
            return self._begin(
                client, session, {"startAfter" if self._after_invalidate else "resumeAfter": self._token}
            )
        if self._stored_token is not None:
            self._check(client, session, self._stored_token)
        return self._begin(client, session, {"startAtOperationTime": cluster_time.to_timestamp(self._position)})

    def _check(self, client: Client, session: ClientSession, token: str) -> None:
        """Raises Failure if the log lacks an event that was read: the deployment was restored from a backup."""
        # A heartbeat follows the event, so a log without the event is noticed.
        mongodb_server.write_heartbeat(client, self._level)
        until = time.monotonic() + _CHECK_SECONDS
        try:
            cursor, reply = self._begin(client, session, {"resumeAfter": {"_data": token}})
            while reply.identifier and not reply.documents and time.monotonic() < until:
                reply = cursor.next()
            if reply.identifier:
                cursor.close()
        except OperationFailure as error:
            if error.code == mongodb_connection.NOT_IN_LOG:
                event_time = cluster_time.format_position(cluster_time.token_position(token))
                raise Failure(
                    f"an event that was read ({event_time}) no longer exists on the server, which was restored "
                    "from a backup",
                    f"source {self._source}",
                    "Give the source another name in sources.yml, so that it is replicated as a new source",
                ) from None
            # An event that is older than the log: the log may still begin before the stored position.
            if error.code not in mongodb_connection.HISTORY_LOST:
                raise

    def _begin(self, client: Client, session: ClientSession, start: dict[str, Any]) -> tuple[_Cursor, Reply]:
        database, stage = mongodb_server.watch_target(client, self._level, **mongodb_server.STREAM, **start)
        pipeline = [stage, mongodb_server.split_stage(client)]
        command = {"aggregate": 1, "pipeline": pipeline, "cursor": {}, "readConcern": {"level": "majority"}}
        reply = raw_cursor.ask(database, session, command)
        return _Cursor(database, session, Int64(reply.identifier)), reply

    def _take(self, client: Client, reply: Reply) -> bool:
        """Queue a reply; true: the cursor is exhausted."""
        raw, token = reply.documents, reply.token
        self._cuts.over(f"source {self._source}: the change stream continues")
        assert token is not None  # a change stream's replies have one
        position = cluster_time.token_position(token["_data"])
        self._put(Events(raw, position))
        self._heard = time.monotonic()
        if self._token is None or token["_data"] != self._token["_data"]:
            # Until an event follows an invalidation, the token stays that of the invalidation.
            self._after_invalidate = False
        self._token = token
        if raw:
            self._spoke = time.monotonic()
            last = Event(elements.fields(raw[-1]))
            self._after_invalidate = last.kind == INVALIDATE
            if not self._after_invalidate:
                self._event_token = last.token
            if last.namespace[1] != mongodb_server.HEARTBEAT:
                self._newest = cluster_time.token_position(last.token)
        self._beat(client, position)
        return reply.identifier == 0

    def _beat(self, client: Client, position: int) -> None:
        """Write the heartbeat if no event has followed the last one for a while: its clusterTime may still grow."""
        silent = time.monotonic() - self._spoke
        if position > self._newest or silent < self._heartbeat_seconds:
            return
        self._spoke = time.monotonic()
        problem = mongodb_server.write_heartbeat(client, self._level)
        if problem and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "source %s: can't write the heartbeat (%s), so the last change is visible up to ten seconds later; "
                "grant readWrite on %s",
                self._source,
                problem,
                ".".join(mongodb_server.heartbeat_collection(self._level)),
            )

    def _put(self, item: Events | BaseException) -> None:
        while not self._ending.is_set():
            try:
                self._replies.put(item, timeout=0.2)
            except Full:
                continue
            return

    def _failure(self, error: PyMongoError) -> Failure:
        where = f"source {self._source}"
        code = mongodb_connection.error_code(error)
        if code in mongodb_connection.HISTORY_LOST:
            return Failure(
                f"the server no longer has its log from {cluster_time.format_position(self._position)} on",
                where,
                f"Run `tidemark resnapshot --all --source {self._source}`, and give the oplog more time "
                "(storage.oplogMinRetentionHours)",
            )
        if code == mongodb_connection.TOO_LARGE:
            after = cluster_time.format_position(max(self._position, self._newest))
            return Failure(
                f"an event is larger than 16 MB, after {after}",
                where,
                f"Run `tidemark resnapshot --all --source {self._source}`; MongoDB 6.0.9 and later split such events",
            )
        if code == mongodb_connection.UNAUTHORIZED:
            return Failure(
                f"the change stream is not allowed ({mongodb_connection.describe_error(error)})",
                where,
                "Run `tidemark check`",
            )
        return Failure(
            f"the change stream ended ({mongodb_connection.describe_error(error)})", where, "See the server's log"
        )


def _said(error: Exception) -> str:
    return mongodb_connection.describe_error(error) if isinstance(error, PyMongoError) else str(error)
