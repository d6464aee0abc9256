"""When batches are committed, stored and acknowledged, and the state after a failure (design rules W1, W2, W3)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ingest.stream import batch_committer
from ingest.stream.batch_committer import BatchCommitter, CommitHooks
from ingest.stream.open_batch import Batch, ClosedBatch
from tests.harness.kill_points import Killed
from tests.harness.waiting import wait_until
from tests.unit.stream_parts import START, Recorder, batch, held_batch


def open_committer(recorder: Any, **hooks: Any) -> BatchCommitter:
    return BatchCommitter(recorder, recorder.acknowledge, START, CommitHooks(**hooks))


class Gate:
    """A hook that blocks the first batch until the gate is opened."""

    def __init__(self) -> None:
        self.is_reached, self.is_open = threading.Event(), threading.Event()

    def __call__(self, _: Batch) -> None:
        self.is_reached.set()
        assert self.is_open.wait(30)


def test_a_batch_is_committed_then_stored_then_acknowledged(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    committer = open_committer(recorder)
    committer.start()
    assert committer.enqueue(batch(3, 20))
    committer.finish()
    assert recorder.calls == [("commit", 3), ("store", 20), ("acknowledge", 20)]
    assert (committer.progress.position.position, committer.progress.events, committer.progress.commits) == (20, 3, 1)


def test_only_a_new_position_is_stored_and_only_events_are_committed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    committer = open_committer(recorder)
    committer.start()
    for closed in (batch(2, 10, ends_in_transaction=True), batch(0, 30)):
        assert committer.enqueue(closed)
        wait_until(lambda: committer.is_idle)
    committer.finish()
    assert recorder.calls == [("commit", 2), ("store", 30), ("acknowledge", 30)]


def test_batches_that_wait_for_a_commit_are_merged(tmp_path: Path) -> None:
    recorder, gate = Recorder(tmp_path), Gate()
    committer = open_committer(recorder, before_commit=gate)
    committer.start()
    committer.enqueue(batch(1, 20))
    assert gate.is_reached.wait(30)
    committer.enqueue(batch(2, 30))
    committer.enqueue(batch(4, 40))
    assert not committer.is_idle
    gate.is_open.set()
    committer.finish()
    assert [call for call in recorder.calls if call[0] != "acknowledge"] == [
        ("commit", 1),
        ("store", 20),
        ("commit", 6),
        ("store", 40),
    ]


def test_a_discarded_batch_is_not_committed(tmp_path: Path) -> None:
    recorder, gate = Recorder(tmp_path), Gate()
    committer = open_committer(recorder, before_commit=gate)
    committer.start()
    committer.enqueue(batch(1, 20))
    assert gate.is_reached.wait(30)
    committer.enqueue(batch(2, 30))
    with ThreadPoolExecutor(1) as pool:
        discarding = pool.submit(committer.discard_queued)
        wait_until(lambda: not committer._queued)
        gate.is_open.set()
        discarding.result(30)
    committer.finish()
    assert recorder.calls == [("commit", 1), ("store", 20), ("acknowledge", 20)]


def test_files_that_will_not_be_committed_are_removed(tmp_path: Path) -> None:
    def fail(_: Batch) -> None:
        raise Killed

    committer = open_committer(Recorder(tmp_path), before_commit=fail)
    committer.start()
    closed, file = held_batch(1, 20)
    assert committer.enqueue(closed)
    assert committer.enqueue(batch(1, 30))
    wait_until(lambda: committer.failure is not None)
    committer.abort()
    assert file.is_discarded


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("before_commit", []),
        ("after_commit", ["commit"]),
        ("before_store", ["commit"]),
        ("after_store", ["commit", "store", "acknowledge"]),
    ],
)
def test_after_a_failure_no_batch_is_committed(tmp_path: Path, place: str, expected: list[str]) -> None:
    def fail(_: Batch) -> None:
        raise Killed

    recorder = Recorder(tmp_path)
    committer = open_committer(recorder, **{place: fail})
    committer.start()
    assert committer.enqueue(batch(1, 20))
    wait_until(lambda: committer.failure is not None)
    assert not committer.enqueue(batch(1, 30))
    with pytest.raises(Killed):
        committer.finish()
    assert [call for call, _ in recorder.calls] == expected


def test_an_aborted_committer_commits_what_is_queued(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    committer = open_committer(recorder)
    committer.start()
    assert committer.enqueue(batch(1, 20))
    committer.abort()
    assert recorder.calls == [("commit", 1), ("store", 20), ("acknowledge", 20)]


def test_a_batch_written_before_an_earlier_one_moves_no_position(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    stored: list[Batch] = []
    committer = open_committer(recorder, after_store=stored.append)
    committer.start()
    slow, file = held_batch(1, 20)
    for closed in (slow, batch(2, 30), batch(0, 40)):  # the last waits until the second is committed
        assert committer.enqueue(closed)
    wait_until(lambda: len(committer._queued) <= 1)
    assert recorder.calls == [("commit", 2)]
    file.write()
    committer.finish()
    assert recorder.calls == [("commit", 2), ("commit", 1), ("store", 40), ("acknowledge", 40)]
    assert [committed.has_events_past_position for committed in stored] == [False]


def test_events_of_a_later_batch_are_past_the_stored_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_committer, "QUEUE_LENGTH", 3)
    stored: list[Batch] = []
    committer = open_committer(Recorder(tmp_path), after_store=stored.append)
    committer.start()
    (first, first_file), (second, second_file) = held_batch(1, 20), held_batch(1, 30)
    for closed in (first, second, batch(1, 40)):
        assert committer.enqueue(closed)
    wait_until(lambda: committer.progress.commits == 1)
    first_file.write()
    wait_until(lambda: bool(stored))
    second_file.write()
    committer.finish()
    assert [(committed.position.position, committed.has_events_past_position) for committed in stored] == [
        (20, True),
        (40, False),
    ]


def test_a_failed_file_write_ends_the_committer_and_discards_the_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    committer = open_committer(recorder)
    committer.start()
    closed, file = held_batch(1, 20)
    assert committer.enqueue(closed)
    file.fail()
    with pytest.raises(OSError, match="no space left"):
        committer.finish()
    assert (recorder.calls, file.is_discarded) == ([], True)


@pytest.mark.parametrize(
    ("first", "second", "is_past"),
    [
        (batch(1, 20), batch(1, 30), False),
        (batch(1, 20), batch(1, 30, ends_in_transaction=True), True),
        # The transaction at the end of the first batch is finished by the second, unless that has no position.
        (batch(1, 20, ends_in_transaction=True), batch(1, 30), False),
        (batch(1, 20, ends_in_transaction=True), batch(1, 20), True),
    ],
)
def test_an_unfinished_transaction_has_events_past_the_position(
    tmp_path: Path, first: ClosedBatch, second: ClosedBatch, is_past: bool
) -> None:
    stored: list[Batch] = []
    recorder = Recorder(tmp_path)
    committer = open_committer(recorder, after_store=stored.append)
    for closed in (first, second):
        assert committer.enqueue(closed)
    committer.start()
    committer.finish()
    assert [(committed.rows, committed.position, committed.has_events_past_position) for committed in stored] == [
        (2, second.position, is_past)
    ]
