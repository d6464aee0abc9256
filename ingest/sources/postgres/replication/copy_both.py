"""A running replication stream: receives CopyData payloads, sends status messages.

`start` sends START_REPLICATION and returns the stream. On a plain socket, `SocketStream` reads the bytes itself once
libpq has logged in: framing a megabyte at once costs a fifth of asking libpq for each message. Over TLS or GSSAPI,
`LibpqStream` reads through libpq. Neither blocks longer than its timeout. Both raise psycopg's OperationalError when
the connection is lost, and `ReplicationError` when the server ends the stream with an error.
"""

import os
import select
import socket
import struct
import time
from typing import Any, Protocol

import numpy as np
import psycopg
from psycopg import pq

from ingest.sources.postgres.pgoutput.payload_buffer import I64, PADDING, PayloadOffsets
from ingest.sources.postgres.postgres_connection import Connection

_FRAME = struct.Struct(">cI")
_LENGTH = struct.Struct(">I")
_IS_PAYLOAD = np.zeros(256, np.bool_)  # by its first byte: a message of the log, or a keepalive
_IS_PAYLOAD[list(b"wk")] = True
_DATA, _STARTED = b"dW"
_BUFFER_BYTES = 4 << 20
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
    gss = connection.info.get_parameters().get("gssencmode", "disable")
    encrypted = connection.pgconn.ssl_in_use or gss != "disable"
    kind = LibpqStream if encrypted else SocketStream
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


def _payloads(buffer: bytearray, offset: int, end: int, offsets: PayloadOffsets) -> int:
    """Add the adjacent, complete payloads from offset `offset` to `end`; the offset after the last of them.

    Bytes that look like the head of a payload are one if the previous payload ends there, so all heads are offsets at
    once. Bytes that only look like a head, and payloads over 16 MiB, end the run.
    """
    if end - offset <= _FRAME.size or offset + 1 + _LENGTH.unpack_from(buffer, offset + 1)[0] > end:
        return offset  # a large payload is received in many parts: do not scan all of them each time
    data = np.frombuffer(buffer, np.uint8, end - offset, offset)
    heads = np.flatnonzero(data[: -_FRAME.size] == _DATA)
    heads = heads[(data[heads + 1] == 0) & _IS_PAYLOAD[data[heads + _FRAME.size]]]
    lengths: I64 = np.ndarray((len(data) - 4,), ">u4", buffer, offset + 1, (1,))[heads].astype(np.int64)
    stops = heads + 1 + lengths
    before = np.concatenate(([0], stops[:-1]))
    run = int(np.argmin(np.append((heads == before) & (stops <= len(data)), False)))
    if not run:
        return offset
    offsets.start.frombytes((heads[:run] + offset + _FRAME.size).tobytes())
    offsets.end.frombytes((stops[:run] + offset).tobytes())
    return offset + int(stops[run - 1])


class SocketStream:
    """Reads directly from the socket. Payloads stay in the large buffers that received them, never overwritten."""

    def __init__(self, connection: Connection, command: str, timeout: float) -> None:
        self.heard = time.monotonic()
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        self._socket.setblocking(False)
        self._buffer = bytearray(_BUFFER_BYTES + PADDING)
        self._view = memoryview(self._buffer)
        self._from = self._to = 0
        self._out = b""
        self._started = False
        try:
            self._begin(command, timeout)
        except BaseException:
            self.close()
            raise

    def receive(self, held: list[PayloadOffsets], timeout: float) -> int:
        """See `CopyBoth`."""
        size = self._frames(held)  # received together with the answer to the command
        if not size and self._fill(timeout):
            size = self._frames(held)
        self._flush()
        return size

    def send(self, payload: bytes) -> None:
        """See `CopyBoth`."""
        self._send(b"d", payload)

    def close(self) -> None:
        """See `CopyBoth`."""
        self._socket.close()

    def _begin(self, command: str, timeout: float) -> None:
        self._send(b"Q", command.encode() + b"\0")
        while not self._started:
            if not self._fill(timeout):
                raise psycopg.OperationalError("the server does not start the stream")
            self._frames([])

    def _fill(self, timeout: float) -> bool:
        """Read available bytes into the buffer; false: none within `timeout` seconds."""
        self._make_room()
        try:
            count = self._socket.recv_into(self._view[self._to : len(self._buffer) - PADDING])
        except BlockingIOError:
            waiting = [self._socket] if self._out else []
            if not select.select([self._socket], waiting, [], timeout)[0]:
                return False
            try:
                count = self._socket.recv_into(self._view[self._to : len(self._buffer) - PADDING])
            except BlockingIOError:
                return False
        if not count:
            raise psycopg.OperationalError("the server closed the connection")
        self._to += count
        self.heard = time.monotonic()
        return True

    def _make_room(self) -> None:
        """Replace a nearly full buffer; an incomplete message is copied to the new one."""
        left = self._to - self._from
        need = _FRAME.size
        if left >= need:
            need = 1 + _FRAME.unpack_from(self._buffer, self._from)[1]
        room = len(self._buffer) - PADDING
        if self._from + need <= room and self._to < room:
            return
        buffer = bytearray(need + _BUFFER_BYTES + PADDING)
        buffer[:left] = self._view[self._from : self._to]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._from, self._to = 0, left

    def _frames(self, batches: list[PayloadOffsets]) -> int:
        """Frame the messages in the buffer; the number of bytes of the payloads among them."""
        buffer, end, before = self._buffer, self._to, self._from
        goes_on = batches and batches[-1].buffer is buffer
        offsets = batches[-1] if goes_on else PayloadOffsets(buffer)
        already = len(offsets)
        offset = _payloads(buffer, before, end, offsets) if self._started else before
        size = offset - before - (len(offsets) - already) * _FRAME.size
        while end - offset >= _FRAME.size:
            kind = buffer[offset]
            stop = offset + 1 + _LENGTH.unpack_from(buffer, offset + 1)[0]
            if stop > end:
                break
            if kind == _DATA:
                offsets.start.append(offset + _FRAME.size)
                offsets.end.append(stop)
                size += stop - offset - _FRAME.size
            else:
                self._other(kind, bytes(buffer[offset + _FRAME.size : stop]))
            offset = stop
            if kind == _STARTED:  # `receive` reads the rest
                break
        self._from = offset
        if offsets.end and not goes_on:
            batches.append(offsets)
        return size

    def _other(self, kind: int, body: bytes) -> None:
        if kind == _STARTED:
            self._started = True
        elif kind == ord("E"):
            fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0")}
            raise ReplicationError(fields.get(b"C", ""), fields.get(b"M", ""))
        elif kind in b"cCZ":
            raise psycopg.OperationalError("the server ended the stream")

    def _send(self, kind: bytes, body: bytes) -> None:
        self._out += _FRAME.pack(kind, len(body) + 4) + body
        self._flush()

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                return
            self._out = self._out[sent:]
