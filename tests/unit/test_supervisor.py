"""A supervisor restarts the jobs of a source after a failure, and ends them on request."""

import threading
from collections.abc import Callable

import pytest

from ingest.common.errors import Failure, Unavailable
from ingest.pipeline import supervisor as supervisor_module
from ingest.pipeline.supervisor import Job, Supervisor, backoff


class Tries:
    """A supervisor whose jobs raise the given failures, one per attempt, then run until they are stopped."""

    def __init__(self, *failures: Exception | None, opening: Exception | None = None) -> None:
        self._failures = list(failures)
        self._opening = opening
        self.opened = 0
        self.errors: list[BaseException | None] = []
        self.changed = threading.Condition()
        self.supervisor = Supervisor("shop", self._open, self._explain, self._on_change)

    def until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, 30)

    def end(self) -> None:
        self.supervisor.stop()
        self.supervisor.join()

    def _open(self) -> list[Job]:
        with self.changed:
            self.opened += 1
            self.changed.notify_all()
        if self._opening:
            raise self._opening
        failure = self._failures.pop(0) if self._failures else None
        stopped, other = threading.Event(), threading.Event()

        def run() -> None:
            if failure:
                raise failure
            stopped.wait()

        return [Job("stream", run, stopped.set), Job("snapshot", other.wait, other.set)]

    @staticmethod
    def _explain(error: BaseException) -> Unavailable | None:
        return error if isinstance(error, Unavailable) else None

    def _on_change(self, supervisor: Supervisor) -> None:
        with self.changed:
            self.errors.append(supervisor.error)
            self.changed.notify_all()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "LONGEST_SECONDS", "MANUAL_ACTION_SECONDS", "STEADY_SECONDS"):
        monkeypatch.setattr(supervisor_module, name, 0.01)


@pytest.mark.parametrize("failure", [Unavailable("the disk is full"), Failure("the slot is lost"), RuntimeError("?")])
def test_jobs_are_restarted_until_they_run(failure: Exception) -> None:
    tries = Tries(failure, failure)
    tries.supervisor.start()
    tries.until(lambda: failure in tries.errors and tries.errors[-1] is None and tries.opened == 3)
    assert not tries.supervisor.is_failed
    tries.end()
    assert tries.opened == 3


def test_a_source_is_failed_if_it_needs_action_or_never_opened() -> None:
    unavailable, lost = Unavailable("no primary answers"), Failure("the slot is lost")
    for failure, is_opened, is_failed in ((unavailable, True, False), (unavailable, False, True), (lost, True, True)):
        tries = Tries(*[failure] * 1000) if is_opened else Tries(opening=failure)
        tries.supervisor.start()
        tries.until(lambda tries=tries: tries.opened > 2)  # type: ignore[misc]
        tries.end()
        assert tries.supervisor.was_tried
        assert tries.supervisor.has_opened is is_opened
        assert tries.supervisor.is_failed is is_failed


def test_jobs_stopped_during_their_start_end() -> None:
    opening, go_on = threading.Event(), threading.Event()
    stopped = threading.Event()

    def open_jobs() -> list[Job]:
        opening.set()
        assert go_on.wait(30)
        return [Job("stream", stopped.wait, stopped.set)]

    supervisor = Supervisor("shop", open_jobs, lambda _: None, lambda _: None)
    supervisor.start()
    assert opening.wait(30)
    supervisor.stop()
    go_on.set()
    supervisor.join()
    assert stopped.is_set()
    assert supervisor.error is None


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2.0), (2, 4.0), (8, 256.0), (9, 300.0), (5000, 300.0)])
def test_pauses_double_up_to_the_maximum(failures: int, seconds: float) -> None:
    assert backoff(failures, 2.0, 300.0) == seconds


def test_jobs_that_have_failed_for_days_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(supervisor_module, "STEADY_SECONDS", 1.0)  # otherwise an attempt may count as recovered
    tries = Tries(*[Unavailable("no primary answers")] * 1100)
    tries.supervisor.start()
    tries.until(lambda: tries.opened == 1101 and tries.errors[-1] is None)
    tries.end()


def test_jobs_must_run_longer_after_each_repeated_failure() -> None:
    """Otherwise an event that can't be committed would be a new problem each time it is read again."""
    failures = [Failure("event 1 can't be committed")] * 5 + [Failure("the slot is lost")]
    recovered: list[threading.Event] = []
    steady: list[float] = []
    opened = threading.Condition()

    def open_jobs() -> list[Job]:
        stopped, own = threading.Event(), threading.Event()
        failure = failures[len(recovered)] if len(recovered) < len(failures) else None
        with opened:
            recovered.append(own)
            steady.append(supervisor._steady_seconds)
            opened.notify_all()

        def run() -> None:
            if failure:
                own.wait()
                raise failure
            stopped.wait()

        return [Job("stream", run, stopped.set)]

    def on_change(supervisor: Supervisor) -> None:
        if supervisor.error is None:
            recovered[-1].set()

    supervisor = Supervisor("shop", open_jobs, lambda _: None, on_change)
    supervisor.start()
    with opened:
        assert opened.wait_for(lambda: len(steady) == 7, 30)
    supervisor.stop()
    supervisor.join()
    # The first failure came before any recovery.
    assert steady == [0.01, 0.01, 0.02, 0.04, 0.08, 0.16, 0.01]


def test_a_job_that_does_not_end_is_awaited_until_the_timeout() -> None:
    opened, answered = threading.Event(), threading.Event()

    def wait_for_the_server() -> None:
        opened.set()
        answered.wait()

    supervisor = Supervisor(
        "shop", lambda: [Job("snapshot", wait_for_the_server, lambda: None)], lambda _: None, lambda _: None
    )
    supervisor.start()
    assert opened.wait(30)
    supervisor.stop()
    assert not supervisor.join(0.01)
    answered.set()
    assert supervisor.join()
