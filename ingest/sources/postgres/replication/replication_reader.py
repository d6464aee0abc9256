"""The thread that reads the replication socket: received payloads in batches for the decoder.

`Reader` starts at the stored position, and returns to it, with back-off, when the connection is lost; a `StreamReset`
in its output announces that the following payloads were partly returned before. It acknowledges stored positions only,
every few seconds and on request, however slow its consumer is: a full queue stops the reading, never the status
messages. It ends when it is stopped, or after it has put the error that ended it into the queue.
"""

import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

import psycopg
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from ingest.common.errors import Failure, Unavailable
from ingest.common.log_repeats import Repeats
from ingest.positions.position import StreamReset, format_lsn
from ingest.sources.postgres.pgoutput.payload_buffer import PayloadOffsets
from ingest.sources.postgres.postgres_connection import CannotConnect, Connection
from ingest.sources.postgres.replication import copy_both
from ingest.sources.postgres.replication.copy_both import CopyBoth, ReplicationError

_log = logging.getLogger(__name__)

# A payload batch is passed on when it is large enough to decode efficiently, or old enough not to add latency.
PAYLOAD_BATCH_BYTES = 2 << 20
PAYLOAD_BATCH_SECONDS = 0.05
_START_SECONDS = 60.0
# Memory of a queued payload in addition to its bytes: its two offsets.
_OVERHEAD = 16
# After this time a silent server is reported; as the default of wal_sender_timeout is for a silent client.
SILENCE_SECONDS = 60.0
_POSTGRES_EPOCH = 946_684_800
_STATUS = struct.Struct(">cQQQqB")
# Errors after which the server accepts a new connection sooner or later.
_TRANSIENT_SQLSTATES = ("57P", "08", "53")

PayloadBatch = list[PayloadOffsets]


class BoundedQueue:
    """The queue between the reader and its consumer, bounded in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[tuple[PayloadBatch | StreamReset | BaseException, int]] = deque()
        self._size = 0
        self._changed = threading.Condition()

    def put(self, item: PayloadBatch | StreamReset | BaseException, size: int, timeout: float) -> bool:
        """Add an item; false if the queue stayed full for `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._size < self._limit, timeout):
                return False
            self._items.append((item, size))
            self._size += size
            self._changed.notify_all()
            return True

    def get(self, timeout: float) -> PayloadBatch | StreamReset | None:
        """The next item; None: there is none within `timeout` seconds. If the item is an exception, raises it."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._items), timeout):
                return None
            item, size = self._items[0]
            if isinstance(item, BaseException):
                raise item
            self._items.popleft()
            self._size -= size
            self._changed.notify_all()
            return item

    @property
    def size(self) -> int:
        """The queued bytes."""
        return self._size


class Reader(threading.Thread):
    """Reads one slot of a source into a `BoundedQueue`.

    connect: returns a checked replication connection and the position to start at. After the first success,
    CannotConnect and psycopg's OperationalError are retried; any other error ends the thread. stored: returns the
    position that may be acknowledged.
    """

    def __init__(
        self,
        source: str,
        connect: Callable[[], tuple[Connection, StreamReset]],
        start: Callable[[int], str],
        stored: Callable[[], int],
        queue: BoundedQueue,
        status_interval_seconds: float,
        silence_seconds: Callable[[], float] = lambda: SILENCE_SECONDS,
    ) -> None:
        """start: returns the START_REPLICATION command for a position. silence_seconds: returns the time after which a
        server that sends nothing, although a reply was requested, is reported.
        """
        super().__init__(name="reader", daemon=True)
        self._source = source
        self._connect = connect
        self._command_for = start
        self._stored = stored
        self._queue = queue
        self._status_seconds = status_interval_seconds
        self._stop_reading = threading.Event()
        self._stopped = threading.Event()
        self._connection: Connection | None = None
        self._stream: CopyBoth | None = None
        self._silence_seconds = silence_seconds
        self._acknowledged = 0
        self._next_status = 0.0
        self._cuts, self._silences = Repeats(_log), Repeats(_log)

    def finish(self) -> None:
        """Stop reading; send status messages until `stop`."""
        self._stop_reading.set()

    def stop(self) -> None:
        """Acknowledge the stored position and end."""
        self._stop_reading.set()
        self._stopped.set()

    def run(self) -> None:
        """Stream until stopped; reconnect after each lost connection."""
        first = True
        while not self._stopped.is_set():
            try:
                try:
                    self._open(first)
                    first = False
                    self._read()
                except ReplicationError as refused:
                    raise self._to_error(refused) from None
            except Failure as failure:
                self._put(failure, 0)
                return
            except (psycopg.OperationalError, OSError) as error:
                if self._stop_reading.is_set():
                    return
                if first:
                    self._put(
                        Unavailable(f"the stream can't be started ({_one_line(error)})", f"source {self._source}"), 0
                    )
                    return
                self._cuts.occurred(
                    f"source {self._source}: the replication connection was cut ({_one_line(error)})", key="cut"
                )
            except BaseException as error:  # noqa: BLE001  # raised by `BoundedQueue.get`
                self._put(error, 0)
                return
            finally:
                self._close()

    def _open(self, first: bool) -> None:
        """Connect and start the stream; except the first time, retry until it succeeds."""
        for attempt in Retrying(
            retry=retry_if_exception_type((psycopg.OperationalError, CannotConnect)),
            wait=wait_random_exponential(multiplier=0.2, max=15),
            stop=lambda _: first or self._stop_reading.is_set(),
            sleep=self._pause,
            after=self._report_retry,
            reraise=True,
        ):
            with attempt:
                self._connection, restart = self._connect()
                self._put(restart, 0)
                command = self._command_for(restart.position)
                self._stream = copy_both.start(self._connection, command, _START_SECONDS)
                self._acknowledged = 0
                self._next_status = 0.0
        self._cuts.over(f"source {self._source}: the replication connection is established again")

    def _report_retry(self, retry: RetryCallState) -> None:
        error = retry.outcome.exception() if retry.outcome else None
        self._cuts.occurred(f"source {self._source}: still can't reconnect ({_one_line(error)})", key="connect")

    def _pause(self, seconds: float) -> None:
        self._stop_reading.wait(seconds)

    def _read(self) -> None:
        """Until stopped: receive payloads, pass them on, send status messages."""
        assert self._stream is not None
        batch: PayloadBatch = []
        size, since = 0, 0.0
        while not self._stop_reading.is_set():
            wait = min(PAYLOAD_BATCH_SECONDS if batch else 0.5, self._status_seconds)
            size += self._stream.receive(batch, wait)
            if batch:
                since = since or time.monotonic()
                if size >= PAYLOAD_BATCH_BYTES or time.monotonic() - since >= PAYLOAD_BATCH_SECONDS:
                    self._put(batch, size + _OVERHEAD * sum(map(len, batch)))
                    batch, size, since = [], 0, 0.0
            self._send_status_if_due()
            self._report_silence()
        if batch:
            self._put(batch, size + _OVERHEAD * sum(map(len, batch)))
        while not self._stopped.wait(0.1):
            self._send_status_if_due()
        self._send_status()

    def _put(self, item: PayloadBatch | StreamReset | BaseException, size: int) -> None:
        while not self._queue.put(item, size, 0.2):
            if self._stopped.is_set():
                return
            self._send_status_if_due()

    def _send_status_if_due(self) -> None:
        """Send a status every `status_interval_seconds`, or after a second if a new position can be acknowledged."""
        now = time.monotonic()
        early = self._next_status - self._status_seconds + min(1.0, self._status_seconds)
        if now >= self._next_status or (now >= early and self._stored() > self._acknowledged):
            self._send_status()

    def _report_silence(self) -> None:
        limit = self._silence_seconds()
        if self._silent_seconds() < limit / 2:
            self._silences.over(f"source {self._source}: the server sends again")
        elif self._silent_seconds() >= limit:
            silent = f"the server has sent nothing for {limit:.0f} s despite a reply request: its walsender may hang"
            self._silences.occurred(f"source {self._source}: {silent}")

    def _silent_seconds(self) -> float:
        return time.monotonic() - self._stream.heard if self._stream else 0.0

    def _send_status(self) -> None:
        """Acknowledge the stored position; request a reply if the server has been silent for long."""
        if self._stream is None:
            return
        stored = self._stored()
        ask = self._silent_seconds() >= self._silence_seconds() / 2
        micros = int((time.time() - _POSTGRES_EPOCH) * 1_000_000)
        self._stream.send(_STATUS.pack(b"r", stored, stored, stored, micros, ask))
        self._acknowledged = stored
        self._next_status = time.monotonic() + self._status_seconds

    def _to_error(self, refused: ReplicationError) -> Exception:
        """The server's error as one to retry, or as a Failure."""
        if refused.sqlstate.startswith(_TRANSIENT_SQLSTATES):
            return psycopg.OperationalError(refused.message)
        return Failure(
            f"the server rejected the stream ({refused.message})",
            f"source {self._source}, position {format_lsn(self._stored())}",
            f"Correct it on the server, or run `tidemark resnapshot --all --source {self._source}`",
        )

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:200]
