"""Positions: text form, visible ranges, minimum of a source."""

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


def make_position(position: int, start: int = 100, writer: int = 1, source: str = "shop") -> Position:
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
def test_an_invalid_lsn_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        parse_lsn(text)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_number_out_of_the_lsn_range_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        format_lsn(number)


def test_a_position_never_falls() -> None:
    assert make_position(120).advanced_to(110) == make_position(120)
    assert make_position(120).advanced_to(130) == make_position(130)


def test_the_highest_position_of_an_epoch_counts_in_any_order() -> None:
    assert latest_per_epoch([make_position(100), make_position(150), make_position(120)]) == [make_position(150)]


def test_events_between_two_epochs_are_never_visible() -> None:
    stored = [make_position(100), make_position(150), make_position(300, start=300), make_position(400, start=300)]
    assert readable_ranges(stored, "shop", 1) == [(100, 150), (300, 400)]


def test_an_epoch_without_progress_has_no_visible_range() -> None:
    assert readable_ranges([make_position(100)], "shop", 1) == []


def test_the_position_of_a_source_is_that_of_its_slowest_writer() -> None:
    assert (
        min_position([make_position(150), make_position(130, writer=2), make_position(900, source="other")], "shop")
        == 130
    )


def test_only_the_newest_epoch_of_a_writer_counts_for_the_minimum() -> None:
    assert min_position([make_position(150), make_position(310, start=300)], "shop") == 310


def test_a_removed_writer_does_not_count_for_the_minimum() -> None:
    assert min_position([make_position(150), make_position(130, writer=2)], "shop", {1}) == 150


def test_a_source_has_no_position_while_a_writer_has_none() -> None:
    assert min_position([make_position(150)], "shop", {1, 2}) is None


def test_a_source_without_writers_has_no_position() -> None:
    assert min_position([], "shop") is None


def test_the_current_writers_are_those_that_started_last() -> None:
    stored = [make_position(310, start=300), make_position(150), make_position(120, writer=2)]
    assert current_epochs(stored) == {
        ("shop", 1): make_position(310, start=300),
        ("shop", 2): make_position(120, writer=2),
    }
