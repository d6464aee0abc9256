"""The thread that reads a change stream ahead of the decoder: replies into a bounded queue.

It asks by aggregate and getMore itself, for raw BSON and the token of each reply, which PyMongo's own change streams
keep to themselves. What passes (network, elections, killed cursors) is got over by a new cursor behind the last token;
what doesn't ends the stream with an error that says what to do.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError

from ingest.errors import Failure
from ingest.mongodb import clustertime, connection, server
from ingest.mongodb.changes import INVALIDATE, Events
from ingest.mongodb.connection import RAW, Client

_log = logging.getLogger(__name__)

_AWAIT_MILLISECONDS = 500
_LONGEST_PAUSE = 10.0
# Replies of up to 16 MB each.
_REPLIES = 3


@dataclass
class _Cursor:
    """A change stream on the server, in a session of its own."""

    database: Database[dict[str, Any]]
    session: ClientSession
    identifier: int

    def next(self) -> Any:
        """The next reply's `cursor`; may have no events."""
        command = {"getMore": self.identifier, "collection": "$cmd.aggregate", "maxTimeMS": _AWAIT_MILLISECONDS}
        return self.database.command(command, codec_options=RAW, session=self.session)["cursor"]


class Reader(threading.Thread):
    """Reads a stream of `level` (`cluster`, or a database's name) from a position on.

    connect: a client that is connected. heartbeat_seconds: of silence, before the heartbeat is written.
    """

    def __init__(
        self, source: str, level: str, position: int, connect: Callable[[], Client], heartbeat_seconds: float
    ) -> None:
        super().__init__(name=f"change stream {source}", daemon=True)
        self._source = source
        self._level = level
        self._position = position
        self._connect = connect
        self._heartbeat_seconds = heartbeat_seconds
        self._token: RawBSONDocument | None = None
        self._after_invalidate = False
        self._replies: Queue[Events | BaseException] = Queue(_REPLIES)
        self._ending = threading.Event()
        self._newest = 0
        self._spoke = time.monotonic()
        self._told = False

    def get(self, timeout: float) -> Events | None:
        """The next reply; None: nothing within `timeout` seconds. Raises what ended the stream."""
        try:
            item = self._replies.get(timeout=timeout)
        except Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        return item

    def finish(self) -> None:
        """Read no more; what was read may still be taken."""
        self._ending.set()

    def run(self) -> None:
        """Read until `finish`."""
        pause = 0.0
        while not self._ending.is_set():
            try:
                with self._connect() as client:
                    pause = 0.0
                    self._read(client)
            except (PyMongoError, connection.CannotConnect) as error:
                if isinstance(error, PyMongoError) and not connection.passes(error):
                    self._put(self._failure(error))
                    return
                pause = min(2 * pause + 0.1, _LONGEST_PAUSE)
                _log.warning("source %s: the change stream was cut (%s); reading on", self._source, _said(error))
                self._ending.wait(pause)
            except BaseException as error:  # noqa: BLE001  # raised by whoever reads
                self._put(error)
                return

    def _read(self, client: Client) -> None:
        with client.start_session() as session:
            cursor, reply = self._open(client, session)
            while not self._ending.is_set():
                if self._take(client, reply):
                    return
                reply = cursor.next()

    def _open(self, client: Client, session: ClientSession) -> tuple[_Cursor, Any]:
        start: dict[str, Any] = {"startAtOperationTime": clustertime.timestamp(self._position)}
        if self._token is not None:
            start = {"startAfter" if self._after_invalidate else "resumeAfter": self._token}
        database, stage = server.stream_of(
            client, self._level, fullDocument="whenAvailable", showExpandedEvents=True, **start
        )
        pipeline = [stage]
        version = tuple(client.server_info()["versionArray"])
        if version >= (7,) or (6, 0, 9) <= version < (6, 1):
            pipeline.append({"$changeStreamSplitLargeEvent": {}})
        command = {"aggregate": 1, "pipeline": pipeline, "cursor": {}, "readConcern": {"level": "majority"}}
        reply = database.command(command, codec_options=RAW, session=session)["cursor"]
        self._after_invalidate = False
        return _Cursor(database, session, int(reply["id"])), reply

    def _take(self, client: Client, reply: Any) -> bool:
        """Hand a reply over; whether the cursor is at its end."""
        raw = reply["firstBatch"] if "firstBatch" in reply else reply["nextBatch"]
        token = reply["postBatchResumeToken"]
        position = clustertime.of_token(token["_data"])
        self._put(Events([event.raw for event in raw], position))
        self._token = token
        if raw:
            self._spoke = time.monotonic()
            # A fragment of a split event may have nothing but its token and one large field.
            self._after_invalidate = raw[-1].get("operationType") == INVALIDATE
            if not server.is_ours(raw[-1].get("ns", {})):
                self._newest = clustertime.of_token(raw[-1]["_id"]["_data"])
        self._beat(client, position)
        return int(reply["id"]) == 0

    def _beat(self, client: Client, position: int) -> None:
        """When nothing has followed the last event for a while: it can't be seen before something does."""
        silent = time.monotonic() - self._spoke
        if position > self._newest or silent < self._heartbeat_seconds:
            return
        self._spoke = time.monotonic()
        problem = server.beat(client, self._level)
        if problem and not self._told:
            self._told = True
            _log.warning(
                "source %s: no heartbeat can be written (%s), so the last change shows up to ten seconds later; "
                "grant readWrite on %s",
                self._source,
                problem,
                ".".join(server.heartbeat_of(self._level)),
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
        found = connection.code(error)
        if found in connection.HISTORY_LOST:
            return Failure(
                f"the server no longer has its log from {clustertime.readable(self._position)} on",
                where,
                "Run `tidemark resnapshot --all`, and give the oplog more time (storage.oplogMinRetentionHours)",
            )
        if found == connection.TOO_LARGE:
            return Failure(
                f"an event is larger than 16 MB, after {clustertime.readable(self._newest)}",
                where,
                "MongoDB 6.0.9 and later split such events; on this one run `tidemark resnapshot --all`",
            )
        if found == connection.UNAUTHORIZED:
            return Failure(
                f"the change stream is not allowed ({connection.said(error)})", where, "Run `tidemark check`"
            )
        return Failure(f"the change stream ended ({connection.said(error)})", where, "See the server's log")


def _said(error: Exception) -> str:
    return connection.said(error) if isinstance(error, PyMongoError) else str(error)
