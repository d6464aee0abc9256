"""A running replication stream: receives CopyData payloads, sends status messages.

`start` sends START_REPLICATION and returns the stream. On a plain socket, `SocketStream` reads the messages without
libpq once libpq has logged in. Over TLS or GSSAPI, `LibpqStream` reads through libpq. Neither blocks longer than its
timeout. Both raise psycopg's OperationalError when the connection is lost, and `ReplicationError` when the server ends
the stream with an error.
"""

import select
import time
from typing import Any, Protocol

import numpy as np
import psycopg
from psycopg import pq

from ingest.sources.postgres.message_socket import DATA, MessageSocket, error_fields, is_plain
from ingest.sources.postgres.pgoutput.payload_buffer import PADDING, PayloadOffsets
from ingest.sources.postgres.postgres_connection import Connection

_IS_PAYLOAD = np.zeros(256, np.bool_)  # by its first byte: a message of the log, or a keepalive
_IS_PAYLOAD[list(b"wk")] = True
_STARTED = ord("W")
_MOST_MESSAGES = 512


class ReplicationError(Exception):
    """The server ended the stream with an error. sqlstate, message: of the server's error."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message


class CopyBoth(Protocol):
    """A running stream. heard: the time of the last data from the server, by the monotonic clock."""

    heard: float

    def receive(self, batches: list[PayloadOffsets], timeout: float) -> int:
        """Append received payloads to `batches`, possibly to its last item.

        Returns the number of bytes; 0: nothing was received within `timeout` seconds.
        """

    def send(self, payload: bytes) -> None:
        """Queue a small message; it is sent when the connection accepts it."""

    def close(self) -> None:
        """Release the resources of the stream; the caller closes the connection."""


def start(connection: Connection, command: str, timeout: float) -> CopyBoth:
    """The stream that `command` starts. connection: a replication connection, for this stream only."""
    kind = SocketStream if is_plain(connection) else LibpqStream
    return kind(connection, command, timeout)


class LibpqStream:
    """Reads through libpq, message by message."""

    def __init__(self, connection: Connection, command: str, timeout: float) -> None:
        self.heard = time.monotonic()
        self._pgconn = connection.pgconn
        self._pgconn.send_query(command.encode())
        while self._pgconn.is_busy():
            if not select.select([self._pgconn.socket], [], [], timeout)[0]:
                raise psycopg.OperationalError("the server does not start the stream")
            self._pgconn.consume_input()
        result = self._pgconn.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            raise _stream_error(result)

    def receive(self, held: list[PayloadOffsets], timeout: float) -> int:
        """See `CopyBoth`."""
        size = self._take(held)
        if not size and select.select([self._pgconn.socket], [], [], timeout)[0]:
            self.heard = time.monotonic()
            self._pgconn.consume_input()
            size = self._take(held)
        self._pgconn.flush()
        return size

    def send(self, payload: bytes) -> None:
        """See `CopyBoth`."""
        self._pgconn.put_copy_data(payload)
        self._pgconn.flush()

    def close(self) -> None:
        """See `CopyBoth`."""

    def _take(self, batches: list[PayloadOffsets]) -> int:
        messages: list[bytes] = []
        while len(messages) < _MOST_MESSAGES:
            length, data = self._pgconn.get_copy_data(1)
            if length < 0:
                raise _stream_error(self._pgconn.get_result())
            if length == 0:
                break
            messages.append(bytes(data))
        if messages:
            batches.append(PayloadOffsets.from_messages(messages))
        return sum(map(len, messages))


def _stream_error(result: Any) -> Exception:
    state = result.error_field(pq.DiagnosticField.SQLSTATE) if result is not None else None
    if state is None:
        text = result.error_message.decode(errors="replace") if result is not None else ""
        return psycopg.OperationalError(text or "the server ended the stream")
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    return ReplicationError(state.decode(), message.decode(errors="replace"))


class SocketStream:
    """Reads directly from the socket. Payloads stay in the large buffers that received them."""

    def __init__(self, connection: Connection, command: str, timeout: float) -> None:
        self.heard = time.monotonic()
        self._socket = MessageSocket(connection, PADDING)
        try:
            self._start(command, timeout)
        except BaseException:
            self.close()
            raise

    def receive(self, held: list[PayloadOffsets], timeout: float) -> int:
        """See `CopyBoth`."""
        size = self._take(held)  # received together with the answer to the command
        if not size and self._fill(timeout):
            size = self._take(held)
        self._socket.flush()
        return size

    def send(self, payload: bytes) -> None:
        """See `CopyBoth`."""
        self._socket.send(b"d", payload)

    def close(self) -> None:
        """See `CopyBoth`."""
        self._socket.close()

    def _start(self, command: str, timeout: float) -> None:
        self._socket.send(b"Q", command.encode() + b"\0")
        while True:
            if not self._fill(timeout):
                raise psycopg.OperationalError("the server does not start the stream")
            for kind, start, stop in self._socket.take():
                if kind == _STARTED:  # `receive` takes the others
                    return
                self._reject(kind, bytes(self._socket.buffer[start:stop]))

    def _fill(self, timeout: float) -> bool:
        """Receives available bytes; false: none within `timeout` seconds."""
        if not self._socket.receive(timeout):
            return False
        self.heard = time.monotonic()
        return True

    def _take(self, batches: list[PayloadOffsets]) -> int:
        """Appends the complete payloads in the buffer; returns their number of bytes."""
        buffer = self._socket.buffer
        goes_on = batches and batches[-1].buffer is buffer
        offsets = batches[-1] if goes_on else PayloadOffsets(buffer)
        starts, ends = self._socket.take_run(_IS_PAYLOAD)
        offsets.start.frombytes(starts.tobytes())
        offsets.end.frombytes(ends.tobytes())
        size = int((ends - starts).sum())
        for kind, start, stop in self._socket.take():
            if kind == DATA:
                offsets.start.append(start)
                offsets.end.append(stop)
                size += stop - start
            else:
                self._reject(kind, bytes(buffer[start:stop]))
        if offsets.end and not goes_on:
            batches.append(offsets)
        return size

    def _reject(self, kind: int, body: bytes) -> None:
        """Raises the error for a message that ends the stream."""
        if kind == ord("E"):
            fields = error_fields(body)
            raise ReplicationError(fields.get(b"C", ""), fields.get(b"M", ""))
        if kind in b"cCZ":
            raise psycopg.OperationalError("the server ended the stream")
