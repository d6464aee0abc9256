"""Macros of definitions that only work on texts."""

import pytest

from tests.unit.calling import Macros

MACROS = Macros("bucket/check_row_wise")


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        ("Filter (d#11 < cast(TODAY as date))", "TODAY"),
        ("Filter (d#11 < try_cast(today Europe/Amsterdam as date))", "today"),
        ("Filter isnull(cast( now as timestamp_ntz))", "now"),
        ("Filter (d#11 < to_date(today, None, Some(UTC), true))", "today"),
        ("Project [try_to_timestamp( Now UTC, None, TimestampType, Some(UTC), false) AS t#3]", "Now"),
        ("Project [now() AS t#3]", "now"),
        ("Project [cast(today#5 as date) AS d#6, to_date(now#6, None, Some(UTC), true) AS e#7]", ""),
        ("Project [cast(now as string) AS a#6, cast(2020-01-01 as date) AS d#7, cast(nowhere as date) AS e#8]", ""),
    ],
)
def test_a_moment_in_the_plan_is_found(plan: str, found: str) -> None:
    assert MACROS._not_row_wise({"operator": plan.partition(" ")[0], "text": plan}).strip() == found
