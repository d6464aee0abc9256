"""Rows of COPY from the socket: they are complete wherever the bytes are split, and errors are psycopg's."""

import random
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from ingest.sources.postgres.snapshot.copy_rows import read_rows

STARTED = b"H" + struct.pack(">IbH", 7, 0, 0)
READY = b"Z" + struct.pack(">I", 5) + b"T"
COMPLETE = b"c" + struct.pack(">I", 4) + b"C" + struct.pack(">I", 11) + b"COPY 1\0" + READY


class FakeConnection:
    """A connection as passed to `read_rows`: a plain socket."""

    def __init__(self, client: socket.socket) -> None:
        self.pgconn = SimpleNamespace(socket=client.fileno(), ssl_in_use=False, info=[])
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def ends() -> Iterator[tuple[Any, socket.socket]]:
    """A connection, and the server's end of its socket."""
    client, server = socket.socketpair()
    with client, server:
        yield FakeConnection(client), server


def data(row: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(row) + 4) + row


def error(severity: str, sqlstate: str, message: str) -> bytes:
    fields = f"S{severity}\0V{severity}\0C{sqlstate}\0M{message}\0\0".encode()
    return b"E" + struct.pack(">I", len(fields) + 4) + fields


def send_in_parts(server: socket.socket, wire: bytes, choose: random.Random) -> None:
    start = 0
    while start < len(wire):
        size = choose.choice([1, 3, 5, 100, 5000, 100_000, 5_000_000])
        server.sendall(wire[start : start + size])
        start += size


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_complete_and_in_order(ends: tuple[Any, socket.socket], seed: int) -> None:
    connection, server = ends
    choose = random.Random(seed)
    # The head of a row of 25,596 bytes contains bytes that look like a head; a row of 10 bytes, a newline.
    sizes = [1, 5, 6, 10, 100, 266, 25_596, 25_597, 70_000, 1_500_000]
    sent = [b"d" * (choose.choice(sizes) - 1) + b"\n" for _ in range(60)]
    if seed == 0:
        sent.insert(30, b"x" * (20 << 20) + b"\n")
    notice = b"N" + struct.pack(">I", 4)
    wire = STARTED + b"".join(map(data, sent[:40])) + notice + b"".join(map(data, sent[40:])) + COMPLETE
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_in_parts, server, wire, choose)
        received = [bytes(part) for part in read_rows(connection, "COPY t TO STDOUT")]
        sending.result()
    assert b"".join(received) == b"".join(sent)
    assert all(part.endswith(b"\n") for part in received)
    assert server.recv(100) == b"Q" + struct.pack(">I", 21) + b"COPY t TO STDOUT\0"
    assert not connection.is_closed


def test_many_rows_arrive_at_once(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED + data(b"first\n"))
    rows = read_rows(connection, "COPY")
    assert bytes(next(rows)) == b"first\n"
    server.sendall(data(b"a\tb\n") * 1000 + COMPLETE)
    assert [bytes(part) for part in rows] == [b"a\tb\n" * 1000]


def test_a_table_may_be_empty(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED + COMPLETE)
    assert list(read_rows(connection, "COPY")) == []
    assert not connection.is_closed


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [("42501", psycopg.errors.InsufficientPrivilege), ("55P03", psycopg.errors.LockNotAvailable)],
)
def test_an_error_of_the_server_is_raised_and_the_connection_stays(
    ends: tuple[Any, socket.socket], sqlstate: str, kind: type[Exception]
) -> None:
    connection, server = ends
    server.sendall(error("ERROR", sqlstate, "no access to t") + READY)
    with pytest.raises(kind, match="no access to t"):
        list(read_rows(connection, "COPY"))
    assert not connection.is_closed


def test_an_error_of_an_unknown_kind_is_raised(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED + data(b"1\n") + error("ERROR", "XX9ZZ", "the extension failed") + READY)
    rows = read_rows(connection, "COPY")
    assert bytes(next(rows)) == b"1\n"
    with pytest.raises(psycopg.DatabaseError, match="the extension failed"):
        next(rows)


def test_an_unknown_error_is_of_the_kind_of_its_class(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(error("ERROR", "53X00", "the pool is full") + READY)
    with pytest.raises(psycopg.OperationalError, match="the pool is full") as raised:
        list(read_rows(connection, "COPY"))
    assert raised.value.sqlstate == "53X00"


def test_notices_between_rows_are_ignored(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    notice = b"N" + struct.pack(">I", 4)
    wire = STARTED + (data(b"a\tb\n") + notice) * 50_000 + COMPLETE
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(server.sendall, wire)
        assert b"".join(read_rows(connection, "COPY")) == b"a\tb\n" * 50_000
        sending.result()


def test_the_reason_for_which_the_server_ends_the_connection_is_raised(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED + error("FATAL", "57P01", "terminating connection due to administrator command"))
    with pytest.raises(psycopg.errors.AdminShutdown, match="administrator"):
        list(read_rows(connection, "COPY"))
    assert connection.is_closed


@pytest.mark.parametrize("last", [b"", STARTED, STARTED + data(b"half\n")[:-1]])
def test_a_lost_connection_is_an_operational_error(ends: tuple[Any, socket.socket], last: bytes) -> None:
    connection, server = ends
    server.sendall(last)
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(psycopg.OperationalError):
        list(read_rows(connection, "COPY"))
    assert connection.is_closed


def test_a_caller_that_stops_early_closes_the_connection(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED + data(b"1\n"))
    rows = read_rows(connection, "COPY")
    assert bytes(next(rows)) == b"1\n"
    rows.close()
    assert connection.is_closed
