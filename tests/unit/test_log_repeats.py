"""A repeated problem is logged when it begins, then less often, and when it is over."""

import logging

import pytest

from ingest.common.log_repeats import Repeats, StateLog, message_pattern


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


def test_a_new_problem_is_logged_at_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
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
    states = StateLog(logging.getLogger("ingest.test"))
    with caplog.at_level(logging.INFO):
        for message in ("at 5", "at 5", "at 6", "at 5"):
            states.log_change("shop", message)
        states.log_change("web", "at 5")
    assert caplog.messages == ["at 5", "at 6", "at 5", "at 5"]


@pytest.mark.parametrize(
    ("first", "second", "are_same"),
    [
        (
            "Lost task 0.0 in stage 345.0 (TID 612) (host executor driver): SparkArithmeticException: [DIVIDE_BY_ZERO]",
            "Lost task 1.0 in stage 9.1 (TID 7) (host executor driver): SparkArithmeticException: [DIVIDE_BY_ZERO]",
            True,
        ),
        ("An error occurred while calling o78.sql", "An error occurred while calling o1234.sql", True),
        (
            "/lake/core/t/metadata/00004-84e1c919-6ecd-4591-9c8a-23a2b9b5c800.metadata.json",
            "/lake/core/t/metadata/00005-03d0a7cb-1ecd-4591-8c8a-23a2b9b5c8ff.metadata.json",
            True,
        ),
        ("Got 5 results, configured to fail if != 0", "Got 17 results, configured to fail if != 0", True),
        ("public.t1 can't be read", "public.t2 can't be read", False),
        ("[DIVIDE_BY_ZERO] in orders", "[CAST_OVERFLOW] in orders", False),
        ("slot tidemark_shop_2 is lost", "slot tidemark_shop_3 is lost", False),
    ],
)
def test_a_problem_is_the_same_despite_other_attempt_numbers(first: str, second: str, are_same: bool) -> None:
    assert (message_pattern(first) == message_pattern(second)) == are_same


def test_a_spark_error_is_logged_once_despite_other_stage_numbers(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats(logging.getLogger("ingest.test"), lambda: 0.0)
    for stage in range(5):
        repeats.occurred(f"totals: Task 0 in stage {stage}.0 failed 1 times: [DIVIDE_BY_ZERO]", logging.ERROR)
    assert caplog.messages == ["totals: Task 0 in stage 0.0 failed 1 times: [DIVIDE_BY_ZERO]"]
