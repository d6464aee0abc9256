"""Messages of the Postgres protocol, received from a connection's socket without libpq.

Framing a megabyte at once costs a fifth of asking libpq for each message. Only a plain socket can be read: see
`is_plain`. Until the server's answer is complete, libpq must not be used.
"""

import os
import select
import socket
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import psycopg

from ingest.sources.postgres.postgres_connection import Connection

# The head of a message: its type, and its length without the type.
HEAD = struct.Struct(">cI")
DATA = ord("d")
_LENGTH = struct.Struct(">I")
_BUFFER_BYTES = 4 << 20

Offsets = npt.NDArray[np.int64]


def is_plain(connection: Connection) -> bool:
    """Whether the bytes on the connection's socket are not encrypted."""
    # psycopg's `get_parameters` leaves out defaults of libpq, which encrypt if there is a Kerberos ticket.
    options = {option.keyword: option.val for option in connection.pgconn.info}
    return not connection.pgconn.ssl_in_use and options.get(b"gssencmode", b"disable") == b"disable"


def error_fields(body: bytes) -> dict[bytes, str]:
    """The fields of an ErrorResponse by type, such as C: SQLSTATE, and M: message."""
    return {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0")}


class MessageSocket:
    """The socket of a connection. Received bytes stay in large buffers and are never overwritten.

    buffer, start, end: the received bytes that are not taken yet. padding: bytes in a buffer after the last message.
    """

    def __init__(self, connection: Connection, padding: int = 0) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        self._socket.setblocking(False)
        self._padding = padding
        self.buffer = bytearray(_BUFFER_BYTES + padding)
        self._view = memoryview(self.buffer)
        self.start = self.end = 0
        self._out = b""

    def receive(self, timeout: float | None) -> int:
        """Receives available bytes; returns their number. 0: none within `timeout` seconds (None: waits).

        Raises psycopg's OperationalError if the connection is closed, and OSError if it is lost.
        """
        self._make_room()
        free = self._view[self.end : len(self.buffer) - self._padding]
        try:
            count = self._socket.recv_into(free)
        except BlockingIOError:
            waiting = [self._socket] if self._out else []
            if not select.select([self._socket], waiting, [], timeout)[0]:
                return 0
            try:
                count = self._socket.recv_into(free)
            except BlockingIOError:
                return 0
        if not count:
            raise psycopg.OperationalError("the server closed the connection")
        self.end += count
        return count

    def take_run(self, first_bytes: npt.NDArray[np.bool_] | None = None) -> tuple[Offsets, Offsets]:
        """Takes the adjacent, complete CopyData messages at the start of the buffer, all at once. Returns the offset of
        each payload, and of its end.

        first_bytes: by byte, whether a payload can begin with it; None: payloads contain no NUL. Bytes that look like a
        head are one if the previous message ends there. Others, and payloads over 16 MiB, end the run.
        """
        none = np.zeros(0, np.int64)
        start, size = self.start, self.end - self.start
        # A large message is received in many parts: do not search all of them each time.
        if size <= HEAD.size or start + 1 + _LENGTH.unpack_from(self.buffer, start + 1)[0] > self.end:
            return none, none
        data = np.frombuffer(self.buffer, np.uint8, size, start)
        if first_bytes is None:
            heads = np.flatnonzero(data[1 : 1 - HEAD.size] == 0)
            heads = heads[data[heads] == DATA]
        else:
            heads = np.flatnonzero(data[: -HEAD.size] == DATA)
            heads = heads[(data[heads + 1] == 0) & first_bytes[data[heads + HEAD.size]]]
        lengths: Offsets = np.ndarray((size - 4,), ">u4", self.buffer, start + 1, (1,))[heads].astype(np.int64)
        stops = heads + 1 + lengths
        before = np.concatenate(([0], stops[:-1]))
        run = int(np.argmin(np.append((heads == before) & (stops <= size), False)))
        if not run:
            return none, none
        self.start = start + int(stops[run - 1])
        return heads[:run] + start + HEAD.size, stops[:run] + start

    def take(self) -> Iterator[tuple[int, int, int]]:
        """Takes the complete messages in the buffer, one by one: the type, the offset of the body, and of its end."""
        while self.end - self.start >= HEAD.size:
            start = self.start
            stop = start + 1 + _LENGTH.unpack_from(self.buffer, start + 1)[0]
            if stop > self.end:
                return
            self.start = stop
            yield self.buffer[start], start + HEAD.size, stop

    def send(self, kind: bytes, body: bytes) -> None:
        """Queues a small message; `flush` and `receive` send it when the connection accepts it."""
        self._out += HEAD.pack(kind, len(body) + 4) + body
        self.flush()

    def flush(self) -> None:
        """Sends queued messages, as far as the connection accepts them."""
        while self._out:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                return
            self._out = self._out[sent:]

    def close(self) -> None:
        """Releases the socket; the connection stays open."""
        self._socket.close()

    def _make_room(self) -> None:
        """Replaces a nearly full buffer; an incomplete message is copied to the new one."""
        left = self.end - self.start
        need = HEAD.size
        if left >= need:
            need = 1 + _LENGTH.unpack_from(self.buffer, self.start + 1)[0]
        room = len(self.buffer) - self._padding
        if self.start + need <= room and self.end < room:
            return
        buffer = bytearray(need + _BUFFER_BYTES + self._padding)
        buffer[:left] = self._view[self.start : self.end]
        self.buffer, self._view = buffer, memoryview(buffer)
        self.start, self.end = 0, left
