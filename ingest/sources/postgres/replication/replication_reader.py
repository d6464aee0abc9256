"""The replication socket: payloads as they come, in hand-overs that a decoder can be fed with.

`Reader` is a thread. It starts at the stored position and comes back to it, with back-off, when the
connection is cut; a `Restart` in its output says that what comes next was partly given out before.
It acknowledges stored positions only, every few seconds and when asked, however slow its taker is:
a full pipe stops the reading, never the status. It ends when told to, or with what ended it in the
pipe.
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
from ingest.sources.postgres.pgoutput.payload_buffer import Payloads
from ingest.sources.postgres.postgres_connection import CannotConnect, Connection
from ingest.sources.postgres.replication import copy_both
from ingest.sources.postgres.replication.copy_both import CopyBoth, Refused

_log = logging.getLogger(__name__)

# A hand-over: so large that decoding it is cheap by the message, so young that nobody waits for it.
HAND_OVER_BYTES = 2 << 20
HAND_OVER_SECONDS = 0.05
_START_SECONDS = 60.0
# What a payload costs besides its bytes while it waits: where it begins and ends.
_OVERHEAD = 16
# The default of wal_sender_timeout, after which the server takes a silent client for lost; here for a silent server.
SILENCE_SECONDS = 60.0
_POSTGRES_EPOCH = 946_684_800
_STATUS = struct.Struct(">cQQQqB")
# The server ends these connections itself, and takes new ones sooner or later.
_PASSING = ("57P", "08", "53")

HandOver = list[Payloads]


class Pipe:
    """Hand-overs between the reader and its taker, bounded in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[tuple[HandOver | StreamReset | BaseException, int]] = deque()
        self._size = 0
        self._changed = threading.Condition()

    def put(self, item: HandOver | StreamReset | BaseException, size: int, timeout: float) -> bool:
        """Whether there was room for it within `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._size < self._limit, timeout):
                return False
            self._items.append((item, size))
            self._size += size
            self._changed.notify_all()
            return True

    def get(self, timeout: float) -> HandOver | StreamReset | None:
        """The next item, or None if there is none within `timeout` seconds.

        Raises an exception that is next.
        """
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
        """Bytes that wait."""
        return self._size


class Reader(threading.Thread):
    """Reads one slot of a source into a `Pipe`.

    connect: gives a checked replication connection and where to start, or raises;
    CannotConnect and psycopg's OperationalError are for now, and but the first time tried again; all
    else is for good. stored: the position that may be acknowledged.
    """

    def __init__(
        self,
        source: str,
        connect: Callable[[], tuple[Connection, StreamReset]],
        start: Callable[[int], str],
        stored: Callable[[], int],
        pipe: Pipe,
        status_interval_seconds: float,
        silence_seconds: Callable[[], float] = lambda: SILENCE_SECONDS,
    ) -> None:
        """start: the START_REPLICATION command for a position. silence_seconds: a server that sends nothing for this
        time, though it was asked to, is reported.
        """
        super().__init__(name="reader", daemon=True)
        self._source = source
        self._connect = connect
        self._command_for = start
        self._stored = stored
        self._pipe = pipe
        self._status_seconds = status_interval_seconds
        self._stop_reading = threading.Event()
        self._told_to_end = threading.Event()
        self._connection: Connection | None = None
        self._stream: CopyBoth | None = None
        self._silence_seconds = silence_seconds
        self._acknowledged = 0
        self._next_status = 0.0
        self._cuts, self._silences = Repeats(_log), Repeats(_log)

    def finish(self) -> None:
        """Read no more; go on with the status until `stop`."""
        self._stop_reading.set()

    def stop(self) -> None:
        """Acknowledge what is stored and end."""
        self._stop_reading.set()
        self._told_to_end.set()

    def run(self) -> None:
        """The thread: stream, and again after each cut."""
        first = True
        while not self._told_to_end.is_set():
            try:
                try:
                    self._open(first)
                    first = False
                    self._read()
                except Refused as refused:
                    raise self._explain(refused) from None
            except Failure as failure:
                self._give(failure, 0)
                return
            except (psycopg.OperationalError, OSError) as error:
                if self._stop_reading.is_set():
                    return
                if first:
                    self._give(
                        Unavailable(f"the stream can't be started ({_line(error)})", f"source {self._source}"), 0
                    )
                    return
                self._cuts.occurred(
                    f"source {self._source}: the replication connection was cut ({_line(error)})", key="cut"
                )
            except BaseException as error:  # noqa: BLE001  # raised by whoever takes from the pipe
                self._give(error, 0)
                return
            finally:
                self._close()

    def _open(self, first: bool) -> None:
        """Connect and start; after the first time as often as it takes."""
        for attempt in Retrying(
            retry=retry_if_exception_type((psycopg.OperationalError, CannotConnect)),
            wait=wait_random_exponential(multiplier=0.2, max=15),
            stop=lambda _: first or self._stop_reading.is_set(),
            sleep=self._pause,
            after=self._report,
            reraise=True,
        ):
            with attempt:
                self._connection, restart = self._connect()
                self._give(restart, 0)
                command = self._command_for(restart.position)
                self._stream = copy_both.start(self._connection, command, _START_SECONDS)
                self._acknowledged = 0
                self._next_status = 0.0
        self._cuts.over(f"source {self._source}: the replication connection is established again")

    def _report(self, retry: RetryCallState) -> None:
        error = retry.outcome.exception() if retry.outcome else None
        self._cuts.occurred(f"source {self._source}: still can't reconnect ({_line(error)})", key="connect")

    def _pause(self, seconds: float) -> None:
        self._stop_reading.wait(seconds)

    def _read(self) -> None:
        """Until told to stop: read what is there, hand it over, tell the server."""
        assert self._stream is not None
        held: HandOver = []
        size, since = 0, 0.0
        while not self._stop_reading.is_set():
            wait = min(HAND_OVER_SECONDS if held else 0.5, self._status_seconds)
            size += self._stream.receive(held, wait)
            if held:
                since = since or time.monotonic()
                if size >= HAND_OVER_BYTES or time.monotonic() - since >= HAND_OVER_SECONDS:
                    self._give(held, size + _OVERHEAD * sum(map(len, held)))
                    held, size, since = [], 0, 0.0
            self._status_if_due()
            self._look_for_silence()
        if held:
            self._give(held, size + _OVERHEAD * sum(map(len, held)))
        while not self._told_to_end.wait(0.1):
            self._status_if_due()
        self._status()

    def _give(self, item: HandOver | StreamReset | BaseException, size: int) -> None:
        while not self._pipe.put(item, size, 0.2):
            if self._told_to_end.is_set():
                return
            self._status_if_due()

    def _status_if_due(self) -> None:
        """A status every few seconds, and sooner if there is something new to acknowledge."""
        now = time.monotonic()
        early = self._next_status - self._status_seconds + min(1.0, self._status_seconds)
        if now >= self._next_status or (now >= early and self._stored() > self._acknowledged):
            self._status()

    def _look_for_silence(self) -> None:
        limit = self._silence_seconds()
        if self._silent_seconds() < limit / 2:
            self._silences.over(f"source {self._source}: the server sends again")
        elif self._silent_seconds() >= limit:
            silent = f"the server has sent nothing for {limit:.0f} s, though it was asked: its walsender may be stuck"
            self._silences.occurred(f"source {self._source}: {silent}")

    def _silent_seconds(self) -> float:
        return time.monotonic() - self._stream.heard if self._stream else 0.0

    def _status(self) -> None:
        """Acknowledge what is stored; ask for an answer if the server has been silent for long."""
        if self._stream is None:
            return
        stored = self._stored()
        ask = self._silent_seconds() >= self._silence_seconds() / 2
        micros = int((time.time() - _POSTGRES_EPOCH) * 1_000_000)
        self._stream.send(_STATUS.pack(b"r", stored, stored, stored, micros, ask))
        self._acknowledged = stored
        self._next_status = time.monotonic() + self._status_seconds

    def _explain(self, refused: Refused) -> Exception:
        """Why the server has ended the stream: for now, or for good."""
        if refused.sqlstate.startswith(_PASSING):
            return psycopg.OperationalError(refused.message)
        return Failure(
            f"the server refuses the stream ({refused.message})",
            f"source {self._source}, position {format_lsn(self._stored())}",
            f"Correct it at the server, or `tidemark resnapshot --all --source {self._source}`",
        )

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:200]
