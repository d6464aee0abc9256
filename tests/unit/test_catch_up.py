"""How long a command waits, and what it logs while it waits."""

from types import SimpleNamespace

import pytest

from ingest.common.errors import Failure
from ingest.pipeline import catch_up
from ingest.pipeline.catch_up import ProgressTimeout, WaitReason


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every sleep."""
    slept: list[float] = []
    monkeypatch.setattr(catch_up, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    return slept


def make_state(state: int, location: str = "source shop, writer 1") -> WaitReason:
    return WaitReason(state, f"the stream is at {state}", location, "Start it")


def test_the_command_fails_after_a_time_without_progress(clock: list[float]) -> None:
    patience = ProgressTimeout(60)
    for state in range(100):  # much longer than 60 s
        patience.wait(make_state(state))
    moved = sum(clock[:-1])

    def waits() -> None:
        while True:
            patience.wait(make_state(99))

    with pytest.raises(Failure) as error:
        waits()
    assert str(error.value) == "no progress for 60 s; the stream is at 99: source shop, writer 1. Start it."
    assert sum(clock) == pytest.approx(moved + 60)


def test_the_cause_is_logged_at_once_and_then_less_often(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    patience = ProgressTimeout(60)
    patience.wait(make_state(0))
    assert caplog.messages == ["source shop, writer 1: waiting, as the stream is at 0"]
    while sum(clock) < 3600:
        patience.wait(make_state(len(clock)))
    assert "writer 1: waiting for " in caplog.messages[1]
    assert len(caplog.messages) < 20
    patience.reset()
    patience.wait(make_state(0, "source shop, model row_state"))
    assert caplog.messages[-1] == "source shop, model row_state: waiting, as the stream is at 0"


def test_without_patience_the_state_is_read_once(clock: list[float]) -> None:
    with pytest.raises(Failure, match="no progress for 0 s"):
        ProgressTimeout(0).wait(make_state(0))
    assert clock == []
