"""The thread that reads a change stream ahead of the decoder: replies into a bounded queue.

It asks by aggregate and getMore itself, for raw BSON and the token of each reply, which PyMongo's own change streams
keep to themselves. What passes (network, elections, killed cursors) is got over by a new cursor behind the last token;
what doesn't ends the stream with an error that says what to do.
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
from ingest.sources.mongodb.stream_scope import Scope

_log = logging.getLogger(__name__)

_AWAIT_MILLISECONDS = 500
SILENCE_SECONDS = 30.0
_LONGEST_PAUSE = 10.0
# For an event to follow the heartbeat that was just written.
_CHECK_SECONDS = 3.0
# Replies of up to 16 MB each.
_REPLIES = 3


@dataclass
class _Cursor:
    """A change stream on the server, in a session of its own."""

    database: Database[dict[str, Any]]
    session: ClientSession
    identifier: Int64

    def next(self) -> Reply:
        """The next reply; may have no events."""
        command = {"getMore": self.identifier, "collection": "$cmd.aggregate", "maxTimeMS": _AWAIT_MILLISECONDS}
        return raw_cursor.ask(self.database, self.session, command)

    def close(self) -> None:
        """Let the server forget it."""
        command = {"killCursors": "$cmd.aggregate", "cursors": [self.identifier]}
        self.database.command(command, session=self.session)


class Reader(threading.Thread):
    """Reads a stream from a stored position on.

    connect: a client that is connected. heartbeat_seconds: of silence, before the heartbeat is written.
    """

    def __init__(self, position: Position, connect: Callable[[], Client], heartbeat_seconds: float) -> None:
        super().__init__(name=f"change stream {position.source}", daemon=True)
        self._source = position.source
        self._level = Scope.of(position.slot).level
        self._position = position.position
        self._known = position.token
        self._connect = connect
        self._heartbeat_seconds = heartbeat_seconds
        # Of the newest reply, as the servers tell it one another.
        self.cluster_time: Mapping[str, Any] | None = None
        self._token: RawBSONDocument | None = None
        self._after_invalidate = False
        self._replies: Queue[Events | BaseException] = Queue(_REPLIES)
        self._ending = threading.Event()
        self._newest = 0
        self._spoke = self._heard = time.monotonic()
        self._told = False
        self._cuts, self._silences = Repeats(_log), Repeats(_log)

    def get(self, timeout: float) -> Events | None:
        """The next reply; None: nothing within `timeout` seconds. Raises what ended the stream."""
        try:
            item = self._replies.get(timeout=timeout)
        except Empty:
            self._look_for_silence()
            return None
        if isinstance(item, BaseException):
            raise item
        return item

    def finish(self) -> None:
        """Read no more; what was read may still be taken."""
        self._ending.set()

    def _look_for_silence(self) -> None:
        """Report a silent server: one that works answers at least twice a second, also if there are no events."""
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
                if isinstance(error, PyMongoError) and not mongodb_connection.passes(error):
                    self._put(self._failure(error))
                    return
                pause = min(2 * pause + 0.1, _LONGEST_PAUSE)
                message = f"source {self._source}: the change stream was cut ({_said(error)}); reading on"
                self._cuts.occurred(message, key="cut")
                self._ending.wait(pause)
            except BaseException as error:  # noqa: BLE001  # raised by whoever reads
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
            return self._begin(
                client, session, {"startAfter" if self._after_invalidate else "resumeAfter": self._token}
            )
        if self._known is not None:
            self._check(client, session, {"resumeAfter": {"_data": self._known}})
        return self._begin(client, session, {"startAtOperationTime": cluster_time.timestamp(self._position)})

    def _check(self, client: Client, session: ClientSession, start: dict[str, Any]) -> None:
        """Refuse a log that hasn't got the newest event that was landed: the deployment was set back since."""
        # A heartbeat follows the event, so a log without the event is noticed.
        mongodb_server.beat(client, self._level)
        until = time.monotonic() + _CHECK_SECONDS
        try:
            cursor, reply = self._begin(client, session, start)
            while reply.identifier and not reply.documents and time.monotonic() < until:
                reply = cursor.next()
            if reply.identifier:
                cursor.close()
        except OperationFailure as error:
            if error.code == mongodb_connection.NOT_IN_LOG:
                at = cluster_time.readable(cluster_time.of_token(self._known))
                raise Failure(
                    f"the deployment no longer has an event of {at} that is landed: it was set back since",
                    f"source {self._source}",
                    "Give it another name in sources.yml, so that it is another source",
                ) from None
            # An event that is older than the log: the log may still begin before the stored position.
            if error.code not in mongodb_connection.HISTORY_LOST:
                raise

    def _begin(self, client: Client, session: ClientSession, start: dict[str, Any]) -> tuple[_Cursor, Reply]:
        database, stage = mongodb_server.stream_of(client, self._level, **mongodb_server.STREAM, **start)
        pipeline = [stage, mongodb_server.large_events(client)]
        command = {"aggregate": 1, "pipeline": pipeline, "cursor": {}, "readConcern": {"level": "majority"}}
        reply = raw_cursor.ask(database, session, command)
        return _Cursor(database, session, Int64(reply.identifier)), reply

    def _take(self, client: Client, reply: Reply) -> bool:
        """Hand a reply over; whether the cursor is at its end."""
        raw, token = reply.documents, reply.token
        self._cuts.over(f"source {self._source}: the change stream continues")
        assert token is not None  # a change stream's replies have one
        position = cluster_time.of_token(token["_data"])
        self._put(Events(raw, position))
        self._heard = time.monotonic()
        if self._token is None or token["_data"] != self._token["_data"]:
            # Before anything follows an invalidation, the token is still that of it.
            self._after_invalidate = False
        self._token = token
        if raw:
            self._spoke = time.monotonic()
            last = Event(elements.fields(raw[-1]))
            self._after_invalidate = last.kind == INVALIDATE
            if last.namespace[1] != mongodb_server.HEARTBEAT:
                self._newest = cluster_time.of_token(last.token)
        self._beat(client, position)
        return reply.identifier == 0

    def _beat(self, client: Client, position: int) -> None:
        """When nothing has followed the last event for a while: it can't be seen before something does."""
        silent = time.monotonic() - self._spoke
        if position > self._newest or silent < self._heartbeat_seconds:
            return
        self._spoke = time.monotonic()
        problem = mongodb_server.beat(client, self._level)
        if problem and not self._told:
            self._told = True
            _log.warning(
                "source %s: no heartbeat can be written (%s), so the last change shows up to ten seconds later; "
                "grant readWrite on %s",
                self._source,
                problem,
                ".".join(mongodb_server.heartbeat_of(self._level)),
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
        found = mongodb_connection.code(error)
        if found in mongodb_connection.HISTORY_LOST:
            return Failure(
                f"the server no longer has its log from {cluster_time.readable(self._position)} on",
                where,
                f"Run `tidemark resnapshot --all --source {self._source}`, and give the oplog more time "
                "(storage.oplogMinRetentionHours)",
            )
        if found == mongodb_connection.TOO_LARGE:
            return Failure(
                f"an event is larger than 16 MB, after {cluster_time.readable(max(self._position, self._newest))}",
                where,
                f"Run `tidemark resnapshot --all --source {self._source}`; MongoDB 6.0.9 and later split such events",
            )
        if found == mongodb_connection.UNAUTHORIZED:
            return Failure(
                f"the change stream is not allowed ({mongodb_connection.said(error)})", where, "Run `tidemark check`"
            )
        return Failure(f"the change stream ended ({mongodb_connection.said(error)})", where, "See the server's log")


def _said(error: Exception) -> str:
    return mongodb_connection.said(error) if isinstance(error, PyMongoError) else str(error)
