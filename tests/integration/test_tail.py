"""`tidemark tail` over raw tables as several writers leave them; test_writers.py has the tests with a real source."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ingest.commands.tail import follow
from ingest.common.errors import Failure
from ingest.common.records import EVENTS as SCHEMA
from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS
from ingest.positions.position import Position
from ingest.positions.position_token import Token

Places = list[tuple[int, int]]


class Log:
    """The raw tables of a source, filled by the test."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.source = f"t{uuid.uuid4().hex[:12]}"

    def store_position(self, writer: int, position: int, start: int = 1) -> None:
        self.lake.positions.store(Position(self.source, writer, f"slot{start}", "1", 1, start, position))

    def set_writers(self, *writers: int) -> None:
        self.lake.sources.set_active_writers(self.source, writers)

    def add_events(self, *places: tuple[int, int]) -> None:
        """Adds events of (writer, commit_lsn)."""
        rows = [
            {"source": self.source, "writer": writer, "commit_lsn": commit_lsn, "commit_index": 0}
            for writer, commit_lsn in places
        ]
        self.lake.append(EVENTS, pa.Table.from_pylist(rows, schema=SCHEMA))

    def purge(self, **last: int) -> None:
        entries = ", ".join(f"{writer.removeprefix('w')}, {lsn + 1}L" for writer, lsn in last.items())
        of_source = f"source = '{self.source}'"
        self.lake.spark.sql(f"UPDATE raw.sources SET purged = map({entries}) WHERE {of_source}")
        self.lake.spark.sql(f"DELETE FROM {EVENTS} WHERE {of_source} AND commit_lsn <= {max(last.values())}")

    def follow(self, token: str) -> list[dict[str, Any]]:
        """The lines after a token, until no line is left."""
        return [json.loads(line) for line in follow(self.lake, self.source, Token.parse(token), lambda _: True)]

    def after(self, token: str) -> Places:
        return [(line["writer"], line["commit_lsn"]) for line in self.follow(token)]


@pytest.fixture
def log(lake: Lake) -> Log:
    return Log(lake)


def test_a_purge_is_compared_with_the_printed_position_of_each_writer(log: Log) -> None:
    log.set_writers(1, 2)
    log.add_events((1, 10), (2, 15), (1, 20), (2, 30), (1, 40))
    log.store_position(1, 50)
    log.store_position(2, 45)
    lines = log.follow("s0")
    assert [line["token"] for line in lines] == ["m0~1.11", "m11~2.16", "m16~1.21", "m21~2.31", "m31~1.41"]
    log.purge(w1=20, w2=15)
    # All purged events of writer 1 are past the minimum.
    assert log.after("m16~1.21") == [(2, 30), (1, 40)]
    for token in ("m0~1.11", "m11~2.16", "m0~1.41", "s15"):
        with pytest.raises(Failure, match=f"after token {token} were purged.*start with --from s0"):
            log.after(token)
    assert log.after("s0") == [(2, 30), (1, 40)]
    assert [log.after(line["token"]) for line in log.follow("s0")] == [[(1, 40)], []]


def test_a_writer_added_between_two_queries_is_awaited(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table was assigned to it at 130, and writer 1 has stored 200 since."""
    log.set_writers(1)
    log.add_events((1, 110), (1, 190))
    log.store_position(1, 120)

    def add_writer() -> None:
        log.store_position(2, 125, 125)
        log.set_writers(1, 2)
        log.store_position(1, 200)

    def on_wait(_: float) -> bool:
        log.add_events((1, 210))
        log.store_position(1, 220)
        return False

    positions = log.lake.positions
    monkeypatch.setattr(positions, "read", run_before_first_call(positions.read, add_writer))
    lines = follow(log.lake, log.source, Token(100), on_wait)
    token = [json.loads(next(lines)) for _ in range(3)][-1]["token"]
    log.add_events((2, 150))
    log.store_position(2, 200, 125)
    assert log.after(token) == [(2, 150)]


def run_before_first_call(ask: Callable[..., Any], before: Callable[[], object]) -> Callable[..., Any]:
    """`ask`, with a call of `before` ahead of the first time."""
    pending = [before]

    def call(*arguments: Any) -> Any:
        if pending:
            pending.pop()()
        return ask(*arguments)

    return call


def test_a_gap_in_the_log_is_reported(log: Log) -> None:
    log.set_writers(1, 2)
    log.add_events((1, 40), (2, 90), (1, 160), (2, 170))
    log.store_position(1, 80)
    log.store_position(2, 100)
    log.store_position(1, 180, 120)
    log.store_position(2, 175, 150)
    lines = follow(log.lake, log.source, Token(30), lambda _: True)
    assert [json.loads(next(lines))["commit_lsn"] for _ in range(2)] == [40, 90]
    with pytest.raises(
        Failure, match=r"writer 1's from 80 to 120, writer 2's from 100 to 150.*continue with --from m120~2\.150"
    ):
        next(lines)
    assert log.after("m120~2.150") == [(1, 160), (2, 170)]
    assert log.after("s0") == [(1, 40), (2, 90), (1, 160), (2, 170)], "the rest of the log"


def test_a_returning_writer_without_lost_changes_leaves_no_gap(log: Log) -> None:
    log.set_writers(1, 2)
    log.add_events((1, 40), (2, 90), (1, 95), (2, 170))
    log.store_position(1, 180)
    log.store_position(2, 150)
    log.store_position(2, 175, 150)
    assert log.after("s50") == [(2, 90), (1, 95), (2, 170)]


def test_a_token_ahead_of_all_positions_is_refused(log: Log) -> None:
    log.set_writers(1, 2)
    log.store_position(1, 180)
    log.store_position(2, 150)
    for token in ("s181", "m100~2.151", "m100~3.101"):
        with pytest.raises(Failure, match=f"token {token} is ahead of the lake, whose last position is 180"):
            log.follow(token)
    assert log.follow("m150~1.180") == log.follow("s180") == []
