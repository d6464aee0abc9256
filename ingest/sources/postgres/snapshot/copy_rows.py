"""The rows of `COPY ... TO STDOUT` in text format: from the socket if it is plain, else through libpq."""

from collections.abc import Generator, Iterator
from contextlib import suppress

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.postgres.message_socket import DATA, HEAD, MessageSocket, Offsets, error_fields, is_plain
from ingest.sources.postgres.postgres_connection import Connection, copy_out

_STARTED, _ERROR, _READY = b"HEZ"
# The server sends 8 KiB at a time. Taking many rows at once costs less per row.
_MIN_BYTES = 256 << 10
_MAX_WAIT = 0.002  # seconds
# Longer than each message of a run.
_MAX_LENGTH = 1 << 25


def read_rows(connection: Connection, statement: str) -> Generator[bytes | memoryview, None, None]:
    """The output of a COPY in text format: complete rows, any number at once.

    Close the generator before the connection is used again, also after an exception: see `contextlib.closing`. If it is
    closed before the end, the connection can't be used any more. Raises psycopg's error for an error of the server.
    """
    return _read_socket(connection, statement) if is_plain(connection) else copy_out(connection, statement)


def _read_socket(connection: Connection, statement: str) -> Generator[memoryview, None, None]:
    messages = MessageSocket(connection)
    is_answered = False
    try:
        messages.send(b"Q", statement.encode() + b"\0")
        error = yield from _take_rows(messages)
        is_answered = True
    except OSError as lost:
        raise psycopg.OperationalError(f"the connection was lost: {lost}") from lost
    finally:
        messages.close()
        if not is_answered:  # libpq would read the rest of the answer
            connection.close()
    if error is not None:
        raise error


def _take_rows(messages: MessageSocket) -> Generator[memoryview, None, psycopg.Error | None]:
    """The rows until the server is ready for the next command. Returns the server's error."""
    error: psycopg.Error | None = None
    while True:
        _receive(messages)
        yield from _take_run(messages)
        for kind, start, stop in messages.take():
            if kind == DATA:
                yield memoryview(messages.buffer)[start:stop]
            elif kind == _READY:
                return error
            elif kind == _ERROR:
                fields = error_fields(bytes(messages.buffer[start:stop]))
                error = _make_error(fields.get(b"C", ""), fields.get(b"M", ""))
                if fields.get(b"V") != "ERROR":  # the server closes the connection
                    raise error
            elif kind == _STARTED:  # after each notice, the same rows would be searched again
                yield from _take_run(messages)


def _receive(messages: MessageSocket) -> None:
    """Receives bytes, and waits up to `_MAX_WAIT` for each further part until there are `_MIN_BYTES`."""
    messages.receive(None)
    messages.flush()
    with suppress(OSError, psycopg.OperationalError):  # the next call raises it, after what was received is taken
        while messages.end - messages.start < _MIN_BYTES and messages.receive(_MAX_WAIT):
            pass


def _take_run(messages: MessageSocket) -> Iterator[memoryview]:
    starts, ends = messages.take_run()
    if len(starts):
        yield _remove_heads(messages.buffer, starts, ends)


def _remove_heads(buffer: bytearray, starts: Offsets, ends: Offsets) -> memoryview:
    """The payloads of adjacent messages, without the messages' heads."""
    offsets = np.append(starts - HEAD.size, ends[-1]).astype(np.int32)
    messages = pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    payloads = pc.binary_slice(messages, HEAD.size, _MAX_LENGTH)
    return memoryview(payloads.buffers()[2])


def _make_error(sqlstate: str, message: str) -> psycopg.Error:
    for known in (sqlstate, sqlstate[:2] + "000"):  # or the class of the SQLSTATE
        with suppress(KeyError):
            error = psycopg.errors.lookup(known)(message)
            error.sqlstate = sqlstate
            return error
    return psycopg.DatabaseError(message)
