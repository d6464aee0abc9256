"""Positions: text form, what is visible, how far a source is."""

from dataclasses import replace

import pytest

from ingest.positions.position import (
    Position,
    current_epochs,
    format_lsn,
    latest_per_epoch,
    min_position,
    parse_lsn,
    readable_ranges,
)

START = Position("shop", 1, "slot", "7000", 1, 100, 100)


def at(position: int, start: int = 100, writer: int = 1, source: str = "shop") -> Position:
    return replace(START, position=position, start_position=start, writer=writer, source=source)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0/0", 0), ("0/1B1E4F8", 28435704), ("16/B374D848", 0x16B374D848), ("FFFFFFFF/FFFFFFFF", -1)],
)
def test_an_lsn_is_a_number_and_back(text: str, number: int) -> None:
    number %= 1 << 64
    assert parse_lsn(text) == number
    assert format_lsn(number) == text


@pytest.mark.parametrize("text", ["", "0", "/1", "1/", "1/G", "1/2/3", "123456789/0", "-1/0"])
def test_what_is_no_lsn_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        parse_lsn(text)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_number_that_is_no_lsn_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        format_lsn(number)


def test_a_position_never_falls() -> None:
    assert at(120).advanced_to(110) == at(120)
    assert at(120).advanced_to(130) == at(130)


def test_the_furthest_of_an_incarnation_counts_whatever_the_order() -> None:
    assert latest_per_epoch([at(100), at(150), at(120)]) == [at(150)]


def test_what_lies_between_two_incarnations_is_never_visible() -> None:
    stored = [at(100), at(150), at(300, start=300), at(400, start=300)]
    assert readable_ranges(stored, "shop", 1) == [(100, 150), (300, 400)]


def test_an_incarnation_that_has_not_moved_shows_nothing() -> None:
    assert readable_ranges([at(100)], "shop", 1) == []


def test_a_source_is_as_far_as_its_slowest_writer() -> None:
    assert min_position([at(150), at(130, writer=2), at(900, source="other")], "shop") == 130


def test_only_the_newest_incarnation_of_a_writer_holds_the_minimum() -> None:
    assert min_position([at(150), at(310, start=300)], "shop") == 310


def test_a_writer_that_has_left_does_not_hold_the_minimum() -> None:
    assert min_position([at(150), at(130, writer=2)], "shop", {1}) == 150


def test_a_source_is_nowhere_while_a_writer_that_counts_has_no_position() -> None:
    assert min_position([at(150)], "shop", {1, 2}) is None


def test_a_source_without_writers_is_nowhere() -> None:
    assert min_position([], "shop") is None


def test_the_current_writers_are_those_that_started_last() -> None:
    stored = [at(310, start=300), at(150), at(120, writer=2)]
    assert current_epochs(stored) == {("shop", 1): at(310, start=300), ("shop", 2): at(120, writer=2)}
