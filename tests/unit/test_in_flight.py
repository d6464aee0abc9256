"""Positions of writers: work in flight, announcements of others, and the persisted position of all."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.positions.in_flight import InFlight, Writers

READER = 0


# --- InFlight: the work of one writer --------------------------------------------------------------


def in_flight(*work: int, position: int = 7) -> InFlight:
    work_in_flight = InFlight(position)
    work_in_flight.begin(work)
    return work_in_flight


def test_out_of_order_work_moves_the_position_when_all_below_is_done() -> None:
    work_in_flight = in_flight(8, 9, 10, 11)
    moved = []
    for number in (9, 8, 11, 10):
        work_in_flight.finish([number])
        moved.append(work_in_flight.position)
    assert moved == [7, 9, 9, 11]
    assert work_in_flight.idle


def test_expected_work_blocks_the_position() -> None:
    work_in_flight = InFlight(7)
    work_in_flight.expect(7)
    work_in_flight.begin([9])
    work_in_flight.finish([9])
    assert (work_in_flight.position, work_in_flight.idle) == (7, False)
    work_in_flight.arrived(7, [8])
    assert work_in_flight.position == 7
    work_in_flight.finish([8])
    assert (work_in_flight.position, work_in_flight.idle) == (9, True)


def test_cancelled_work_releases_the_position() -> None:
    work_in_flight = InFlight(7)
    work_in_flight.expect(7)
    work_in_flight.begin([9])
    work_in_flight.finish([9])
    work_in_flight.arrived(7, [])
    assert (work_in_flight.position, work_in_flight.idle) == (9, True)


def test_the_slower_of_two_expected_works_blocks_the_position() -> None:
    work_in_flight = InFlight(7)
    work_in_flight.expect(7)
    work_in_flight.expect(8)
    work_in_flight.arrived(8, [10])
    work_in_flight.finish([10])
    assert work_in_flight.position == 7
    work_in_flight.arrived(7, [])
    assert work_in_flight.position == 10


@pytest.mark.parametrize("again", [7, 8, 9])
def test_work_is_not_started_twice_or_below_the_position(again: int) -> None:
    work_in_flight = in_flight(8, 9)
    work_in_flight.finish([9])
    with pytest.raises(ValueError, match=f"^{again} has already begun"):
        work_in_flight.begin([again])


@pytest.mark.parametrize("wrong", [7, 9, 10])
def test_only_work_in_flight_can_be_finished(wrong: int) -> None:
    work_in_flight = in_flight(8, 9)
    work_in_flight.finish([9])
    with pytest.raises(ValueError, match=f"{wrong} is not in flight"):
        work_in_flight.finish([8, wrong])
    assert work_in_flight.position == 7


@given(st.data(), st.lists(st.integers(1, 60), unique=True, min_size=1, max_size=25))
def test_the_position_is_the_highest_with_nothing_unfinished_below(data: st.DataObject, work: list[int]) -> None:
    work_in_flight = in_flight(*work, position=0)
    unfinished = set(work)
    for number in data.draw(st.permutations(work)):
        before = work_in_flight.position
        work_in_flight.finish([number])
        unfinished.remove(number)
        assert work_in_flight.position >= before
        assert work_in_flight.position == max((w for w in work if w < min(unfinished, default=61)), default=0)
    assert work_in_flight.idle


# --- Writers: all writers of a stream ---------------------------------------------------------------


def reader(stored: dict[int, int], rows: Iterable[tuple[int, int]] = ()) -> Writers:
    return Writers(READER, stored, stored, rows)


def persisted_after(state: Writers, *announced: tuple[int, int]) -> list[int]:
    positions = [state.persisted]
    for writer, position in announced:
        state.advance(writer, position)
        positions.append(state.persisted)
    return positions


def test_ids_without_a_gap_are_persisted_past_the_slowest_writer() -> None:
    announced = [(1, 6), (2, 7), (2, 9), (1, 8), (1, 11), (2, 15)]
    assert persisted_after(reader({1: 3, 2: 5}), *announced) == [3, 6, 7, 7, 9, 9, 11]


def test_rows_present_at_the_start_close_gaps() -> None:
    assert reader({1: 3, 2: 3}, [(2, 5), (1, 4), (2, 7)]).persisted == 5


def test_a_stalled_writer_blocks_only_its_own_stream() -> None:
    state = reader({1: 3, 2: 5, 3: 5})
    assert persisted_after(state, (2, 20), (3, 21), (2, 30)) == [3, 3, 3, 3]
    assert (state.current(2), state.current(1)) == (30, 3)
    assert persisted_after(state, (1, 25)) == [3, 21]


def test_a_late_announcement_changes_nothing() -> None:
    assert persisted_after(reader({1: 3, 2: 5}), (1, 9), (1, 4), (2, 4)) == [3, 5, 5, 5]


def test_an_echo_of_the_writers_own_announcement_changes_nothing() -> None:
    state = Writers(1, [1, 2], {1: 3, 2: 3})
    state.advance(1, 9)
    assert (state.positions, state.current(1)) == ({1: 3, 2: 3}, 3)


def writing(*ids: int) -> Writers:
    """Writer 1 of writers 1 and 2, both at 3, with `ids` in flight."""
    state = Writers(1, [1, 2], {1: 3, 2: 3})
    state.arrived(state.expect(), ids)
    return state


def test_own_work_blocks_the_stream_whatever_the_others_positions() -> None:
    state = writing(5)
    state.advance(2, 9)
    assert (state.persisted, state.current(1)) == (3, 3)
    state.finish([5])
    assert (state.persisted, state.current(1)) == (9, 9)


def test_ids_without_a_gap_also_move_a_busy_writer() -> None:
    state = writing(5)
    state.advance(2, 4)
    assert (state.persisted, state.current(1), state.positions) == (4, 4, {1: 3, 2: 4})


def test_an_unannounced_writer_counts_from_its_first_announcement() -> None:
    state = reader({1: 5})
    assert state.current(9) == 5
    state.advance(9, 7)
    state.advance(1, 20)
    assert (state.positions, state.persisted) == ({1: 20, 9: 7}, 7)


def test_a_reader_has_no_own_ids() -> None:
    state = reader({1: 3, 2: 5})
    assert state.minimal_local() == 3
    for call in (state.expect, state.announcement, lambda: state.arrived(5), lambda: state.finish([6])):
        with pytest.raises(ValueError, match=r"0 is not a writer of this stream; the writers are \[1, 2\]"):
            call()


def test_positions_are_unaffected_by_changes_of_a_copy() -> None:
    state = Writers(1, [1, 2], {1: 3, 2: 5})
    state.positions.clear()
    assert state.positions == {1: 3, 2: 5}


@given(
    st.dictionaries(st.integers(1, 3), st.integers(0, 9), min_size=1),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30)), max_size=20),
)
def test_the_persisted_position_never_falls_below_the_slowest_writer(
    stored: dict[int, int], announced: list[tuple[int, int]]
) -> None:
    state = reader(stored)
    before = state.persisted
    for writer, position in announced:
        state.advance(writer, position)
        assert state.persisted >= max(before, min(state.positions.values()))
        assert state.persisted <= max(state.positions.values())
        before = state.persisted
