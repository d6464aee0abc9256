"""The loop of a stream writer: what it commits, when it ends, what it drops (design rules T4, W1, W2, W5)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ingest.common.errors import Failure
from ingest.common.records import EventBatch
from ingest.config.job_settings import JobSettings
from ingest.positions.position import StreamReset
from ingest.stream.stream_writer import StreamWriter
from tests.unit.stream_parts import MEBIBYTE, START, Recorder, events


def writer(recorder: Any, **settings: Any) -> StreamWriter:
    return StreamWriter(recorder, recorder, START, JobSettings(**settings))


def run_stream(folder: Path, received: Sequence[EventBatch], until: int, **settings: Any) -> list[tuple[str, int]]:
    recorder = Recorder(folder, received)
    writer(recorder, **settings).run(until=until)
    return recorder.calls


def test_events_are_committed_before_their_position_is_stored(tmp_path: Path) -> None:
    calls = run_stream(tmp_path, [events(3, 20), events(2, 30)], until=29, commit_interval_seconds=0.01)
    assert sum(number for call, number in calls if call == "commit") == 5
    committed = stored = 0
    for call, number in calls:
        if call == "commit":
            committed += number
        elif call == "store":
            assert committed >= {20: 3, 30: 5}[number]
            stored = number
        else:
            assert number <= stored
    assert (stored, calls[-1]) == (30, ("acknowledge", 30))


@pytest.mark.timeout(60)
def test_a_transaction_is_committed_in_batches_of_a_bounded_size(tmp_path: Path) -> None:
    """No batch waits for the commit interval, or for the end of the transaction."""
    parts = [events(1, 10, in_transaction=True, size=MEBIBYTE // 2) for _ in range(8)]
    received = [*parts, events(1, 40)]
    recorder = Recorder(tmp_path, received)
    commits: list[int] = []
    recorder.add = lambda _, files: commits.extend(file.rows for file in files)  # type: ignore[method-assign]
    writer(recorder, commit_max_bytes=MEBIBYTE, commit_interval_seconds=3600).run(until=39)
    assert [number for call, number in recorder.calls if call == "store"] == [40]
    assert commits == [2, 2, 2, 2, 1]


@pytest.mark.timeout(60)
def test_an_idle_writer_stores_its_position_on_request(tmp_path: Path) -> None:
    idle = Recorder(tmp_path, [events(0, 20)])
    stream = writer(idle, idle_position_seconds=3600)
    stream.request_position()
    stream.run(until=19)
    assert idle.calls == [("store", 20), ("acknowledge", 20)]


@pytest.mark.timeout(60)
def test_a_stopped_writer_commits_the_rest_of_the_feed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [events(1, 20), events(1, 30)])
    stream = writer(recorder, commit_interval_seconds=3600)
    stream.stop()
    stream.run()
    assert recorder.calls == [("commit", 2), ("store", 30), ("acknowledge", 30)]


@pytest.mark.timeout(60)
def test_events_rejected_before_the_commit_are_dropped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [events(1, 20)])
    recorder.prepare_commit = lambda: False  # type: ignore[method-assign]
    stream = writer(recorder, commit_interval_seconds=3600)
    stream.stop()
    stream.run()
    assert recorder.calls == []


@pytest.mark.timeout(60)
def test_after_a_restart_events_are_not_committed_twice(tmp_path: Path) -> None:
    received: list[Any] = [events(3, 20, in_transaction=True), StreamReset(10, 1), events(3, 20), events(1, 30)]
    recorder = Recorder(tmp_path, received)
    stream = writer(recorder, commit_interval_seconds=3600)
    assert stream.run(until=29).events == 4
    assert sum(number for call, number in recorder.calls if call == "commit") == 4


@pytest.mark.timeout(60)
def test_a_failover_discards_events_past_the_stored_position(tmp_path: Path) -> None:
    received: list[Any] = [events(3, 20), StreamReset(15, 2), events(1, 30)]
    recorder = Recorder(tmp_path, received)
    discarded: list[Any] = []
    recorder.discard_timeline = discarded.append  # type: ignore[attr-defined]
    stored = writer(recorder, commit_interval_seconds=3600).run(until=29).position
    assert [(position.position, position.timeline) for position in discarded] == [(15, 1)]
    assert (stored.position, stored.timeline) == (30, 2)


@pytest.mark.timeout(60)
def test_a_failover_before_a_stored_position_ends_the_writer(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [StreamReset(5, 2)])  # type: ignore[list-item]
    with pytest.raises(Failure, match="the server failed over during a commit"):
        writer(recorder).run()
