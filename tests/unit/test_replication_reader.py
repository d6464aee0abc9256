"""The bounded queue between the reader and its consumer."""

import pytest

from ingest.common.errors import Failure
from ingest.positions.position import StreamReset
from ingest.sources.postgres.pgoutput.payload_buffer import PayloadOffsets
from ingest.sources.postgres.postgres_connection import Connection
from ingest.sources.postgres.replication.replication_reader import BoundedQueue, Reader


def batch_of(message: bytes) -> list[PayloadOffsets]:
    return [PayloadOffsets.from_messages([message])]


def test_items_are_in_order() -> None:
    pipe = BoundedQueue(100)
    assert pipe.put(batch_of(b"a"), 10, 0)
    assert pipe.put(StreamReset(5, 1), 0, 0)
    assert pipe.get(0) == batch_of(b"a")
    assert pipe.get(0) == StreamReset(5, 1)
    assert pipe.get(0) is None


def test_a_full_queue_blocks_until_an_item_is_taken() -> None:
    pipe = BoundedQueue(15)
    assert pipe.put(batch_of(b"a"), 10, 0)
    assert pipe.put(batch_of(b"b"), 10, 0)  # the last item that fits may be of any size
    assert not pipe.put(batch_of(b"c"), 10, 0)
    pipe.get(0)
    assert pipe.put(batch_of(b"c"), 10, 0)


def test_a_failure_is_raised_after_the_items_before_it_and_from_then_on() -> None:
    pipe = BoundedQueue(15)
    pipe.put(batch_of(b"a"), 1, 0)
    pipe.put(Failure("over"), 0, 0)
    assert pipe.get(0) == batch_of(b"a")
    for _ in range(2):
        with pytest.raises(Failure, match="over"):
            pipe.get(0)


def test_any_error_of_the_reader_ends_its_consumer() -> None:
    def connect() -> tuple[Connection, StreamReset]:
        raise RuntimeError("the lake can't be asked for the position")

    pipe = BoundedQueue(15)
    reader = Reader("shop", connect, str, lambda: 0, pipe, 1.0)
    reader.run()
    with pytest.raises(RuntimeError, match="can't be asked"):
        pipe.get(0)
