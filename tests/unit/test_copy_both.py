"""The replication socket: messages are complete wherever the bytes are split."""

import random
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from ingest.sources.postgres.pgoutput.payload_buffer import PayloadOffsets
from ingest.sources.postgres.replication.copy_both import ReplicationError, SocketStream

STARTED = b"W" + struct.pack(">IbH", 7, 0, 0)


def data(payload: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(payload) + 4) + payload


@pytest.fixture
def ends() -> Iterator[tuple[Any, socket.socket]]:
    """A connection as passed to `start`, and the server's end of its socket."""
    client, server = socket.socketpair()
    with client, server:
        yield SimpleNamespace(pgconn=SimpleNamespace(socket=client.fileno())), server


def messages(received: list[PayloadOffsets]) -> list[bytes]:
    return [bytes(run.buffer[start:end]) for run in received for start, end in zip(run.start, run.end, strict=True)]


def test_the_command_is_sent_and_data_after_its_answer_is_kept(
    ends: tuple[Any, socket.socket],
) -> None:
    connection, server = ends
    server.sendall(STARTED + data(b"first"))
    stream = SocketStream(connection, "START", 5)
    assert server.recv(100) == b"Q" + struct.pack(">I", 10) + b"START\0"
    received: list[PayloadOffsets] = []
    assert stream.receive(received, 5) == 5
    assert messages(received) == [b"first"]
    stream.close()


def test_a_large_message_is_received_into_one_buffer(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED)
    stream = SocketStream(connection, "START", 5)
    payload = b"w" * (24 << 20)
    received: list[PayloadOffsets] = []
    buffers: list[bytearray] = []
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(server.sendall, data(payload) + data(b"next"))
        while len(messages(received)) < 2:
            stream.receive(received, 5)
            if not buffers or buffers[-1] is not stream._socket.buffer:
                buffers.append(stream._socket.buffer)
        sent.result()
    assert messages(received) == [payload, b"next"]
    assert len(buffers) <= 3  # the first message's, the large message's, the next message's buffer
    stream.close()


@pytest.mark.parametrize("seed", range(20))
def test_messages_are_complete_and_in_order(ends: tuple[Any, socket.socket], seed: int) -> None:
    connection, server = ends
    server.sendall(STARTED)
    stream = SocketStream(connection, "START", 5)
    choose = random.Random(seed)
    # Payloads of all kinds, among them one that contains the head of a message.
    heads = [b"", b"w", b"k", b"w" + data(b"w")[:-1], b"k" + data(b"w" * 9)]
    sizes = [0, 1, 30, 200, 70_000, 1_500_000]
    sent = [choose.choice(heads) + choose.randbytes(choose.choice(sizes)) for _ in range(40)]
    wire = memoryview(b"".join(map(data, sent)) + b"N" + struct.pack(">I", 4))
    received: list[PayloadOffsets] = []
    size = 0
    while sum(map(len, received)) < len(sent):
        cut = choose.choice([1, 3, 5, 100, 5000, 100_000])
        part, wire = wire[:cut], wire[cut:]
        server.setblocking(False)
        while part:
            try:
                part = part[server.send(part) :]
            except BlockingIOError:
                size += stream.receive(received, 0)
        size += stream.receive(received, 0)
    assert messages(received) == sent
    assert size == sum(map(len, sent))
    stream.close()


def test_a_timeout_returns_no_message(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED)
    stream = SocketStream(connection, "START", 5)
    assert stream.receive([], 0.01) == 0
    stream.close()


def test_a_status_is_sent_in_a_frame(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    server.sendall(STARTED)
    stream = SocketStream(connection, "START", 5)
    server.recv(100)
    stream.send(b"status")
    assert server.recv(100) == data(b"status")
    stream.close()


def test_an_error_of_the_server_is_raised(ends: tuple[Any, socket.socket]) -> None:
    connection, server = ends
    fields = b"SERROR\0C42704\0Mslot does not exist\0\0"
    server.sendall(b"E" + struct.pack(">I", len(fields) + 4) + fields)
    with pytest.raises(ReplicationError, match="slot does not exist") as refused:
        SocketStream(connection, "START", 5)
    assert refused.value.sqlstate == "42704"


@pytest.mark.parametrize("last", [b"", b"c" + struct.pack(">I", 4), data(b"half")[:-1]])
def test_the_end_of_the_stream_is_a_lost_connection(ends: tuple[Any, socket.socket], last: bytes) -> None:
    connection, server = ends
    server.sendall(STARTED + last)
    server.shutdown(socket.SHUT_WR)
    stream = SocketStream(connection, "START", 5)

    def read_on() -> None:
        for _ in range(3):
            stream.receive([], 5)

    with pytest.raises(psycopg.OperationalError):
        read_on()
    stream.close()
