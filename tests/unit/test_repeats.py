"""A problem that repeats is logged when it begins, then less and less often, and when it is over."""

import logging

import pytest

from ingest.repeats import Repeats, States


def test_a_problem_each_second_for_ten_minutes_is_logged_six_times(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    repeats = Repeats(logging.getLogger("ingest.test"), lambda: now)
    with caplog.at_level(logging.INFO):
        for second in range(600):
            now = float(second)
            repeats.occurred("the server is away")
        repeats.over("the server is back")
    assert caplog.messages == [
        "the server is away",
        "the server is away (31 times in 30 s)",
        "the server is away (91 times in 90 s)",
        "the server is away (211 times in 210 s)",
        "the server is away (451 times in 450 s)",
        "the server is back; the problem occurred 600 times in 599 s",
    ]


def test_another_problem_is_logged_at_once_and_an_end_only_after_one(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats(logging.getLogger("ingest.test"), lambda: 0.0)
    with caplog.at_level(logging.INFO):
        repeats.over("nothing was wrong")
        repeats.occurred("cut (port 5)", key="cut")
        repeats.occurred("cut (port 6)", key="cut")
        repeats.occurred("refused", logging.ERROR)
        repeats.over("back")
        repeats.over("back")
    assert caplog.messages == ["cut (port 5)", "refused", "back; the problem occurred 3 times in 0 s"]
    assert caplog.records[1].levelno == logging.ERROR


def test_a_state_is_logged_when_it_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    states = States(logging.getLogger("ingest.test"))
    with caplog.at_level(logging.INFO):
        for message in ("at 5", "at 5", "at 6", "at 5"):
            states.tell("shop", message)
        states.tell("web", "at 5")
    assert caplog.messages == ["at 5", "at 6", "at 5", "at 5"]
