"""The order in which batches are committed, stored and acknowledged; what a failure leaves (rules W1, W2, W3)."""

import threading
from pathlib import Path
from typing import Any

import pytest

from ingest.stream.batch_committer import BatchCommitter, CommitHooks, merge_batches
from ingest.stream.open_batch import Batch
from tests.harness.kill_points import Killed
from tests.unit.stream_parts import START, Recorder, batch


def made(recorder: Any, **hooks: Any) -> BatchCommitter:
    return BatchCommitter(recorder, recorder.acknowledge, START, CommitHooks(**hooks))


class Gate:
    """A hook that lets the first batch wait until it is opened."""

    def __init__(self) -> None:
        self.is_reached, self.is_open = threading.Event(), threading.Event()

    def __call__(self, _: Batch) -> None:
        self.is_reached.set()
        assert self.is_open.wait(30)


def test_a_batch_is_committed_then_its_position_is_stored_then_acknowledged(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    committer = made(recorder)
    committer.start()
    assert committer.enqueue(batch(3, 20))
    committer.finish()
    assert recorder.calls == [("commit", 3), ("store", 20), ("acknowledge", 20)]
    assert (committer.progress.position.position, committer.progress.events, committer.progress.commits) == (20, 3, 1)


def test_only_a_new_position_is_stored_and_only_events_are_committed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    committer = made(recorder)
    committer.start()
    for each in (batch(2, 10, ends_in_transaction=True), batch(0, 30)):
        assert committer.enqueue(each)
        while not committer.is_idle:
            pass
    committer.finish()
    assert recorder.calls == [("commit", 2), ("store", 30), ("acknowledge", 30)]


def test_batches_that_wait_for_a_commit_are_merged(tmp_path: Path) -> None:
    recorder, gate = Recorder(tmp_path), Gate()
    committer = made(recorder, before_commit=gate)
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
    committer = made(recorder, before_commit=gate)
    committer.start()
    committer.enqueue(batch(1, 20))
    assert gate.is_reached.wait(30)
    committer.enqueue(batch(2, 30))
    threading.Timer(0.1, gate.is_open.set).start()
    committer.discard_queued()
    committer.finish()
    assert recorder.calls == [("commit", 1), ("store", 20), ("acknowledge", 20)]


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
    committer = made(recorder, **{place: fail})
    committer.start()
    assert committer.enqueue(batch(1, 20))
    while committer.failure is None:
        pass
    assert not committer.enqueue(batch(1, 30))
    with pytest.raises(Killed):
        committer.finish()
    assert [what for what, _ in recorder.calls] == expected


def test_an_aborted_committer_commits_what_is_queued(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    committer = made(recorder)
    committer.start()
    assert committer.enqueue(batch(1, 20))
    committer.abort()
    assert recorder.calls == [("commit", 1), ("store", 20), ("acknowledge", 20)]


@pytest.mark.parametrize(
    ("first", "second", "ends_in_transaction"),
    [
        (batch(1, 20), batch(1, 30), False),
        (batch(1, 20), batch(1, 30, ends_in_transaction=True), True),
        # The transaction that the first ends in is finished by the second, unless that brings no position.
        (batch(1, 20, ends_in_transaction=True), batch(1, 30), False),
        (batch(1, 20, ends_in_transaction=True), batch(1, 20), True),
    ],
)
def test_merged_batches_have_all_files_and_the_last_position(
    first: Batch, second: Batch, ends_in_transaction: bool
) -> None:
    assert merge_batches(first, second) == Batch(second.position, first.files + second.files, ends_in_transaction)
