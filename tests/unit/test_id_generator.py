"""Ids of several writers: the cases of a multi-writer id generator, and what must hold in any interleaving."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from ingest.common.errors import Failure
from ingest.positions.id_generator import IdGenerator

READER = 9


@dataclass
class Counter:
    """A sequence; `during` runs while the next numbers are fetched, after they were given out."""

    given: int = 0
    name: str = "ids"
    during: list[Callable[[], object]] = field(default_factory=list)

    def last(self) -> int:
        return self.given

    def take(self, count: int) -> Sequence[int]:
        self.given += count
        numbers = range(self.given - count + 1, self.given + 1)
        if self.during:
            self.during.pop()()
        return numbers

    def move(self, last: int) -> None:
        self.given = max(self.given, last)


@dataclass
class Rows:
    name: str
    rows: list[tuple[int, int]] = field(default_factory=list)

    def furthest(self) -> int:
        return max((one for _, one in self.rows), key=abs, default=0)

    def written(self, after: int) -> Iterable[tuple[int, int]]:
        return [(writer, one) for writer, one in self.rows if abs(one) > abs(after)]


@dataclass
class Kept:
    kept: dict[int, int] = field(default_factory=dict)
    broken: bool = False
    after_load: list[Callable[[], object]] = field(default_factory=list)

    def load(self) -> Mapping[int, int]:
        found = dict(self.kept)
        if self.after_load:
            self.after_load.pop()()
        return found

    def store(self, writer: int, position: int) -> None:
        if self.broken:
            raise OSError("the disk is full")
        self.kept[writer] = max(position, self.kept.get(writer, 0), key=abs)

    def delete(self, writers: Collection[int]) -> None:
        for writer in writers:
            del self.kept[writer]


@dataclass
class Disk:
    """What the processes share: a sequence, tables and positions."""

    negative: bool = False
    sequence: Counter = field(default_factory=Counter)
    tables: list[Rows] = field(default_factory=lambda: [Rows("one"), Rows("two")])
    positions: Kept = field(default_factory=Kept)

    def start(self, writer: int = 1, writers: Collection[int] = (1,)) -> IdGenerator:
        return IdGenerator(writer, writers, self.sequence, self.tables, self.positions, self.negative)

    def insert(self, writer: int, one: int, table: int = 0) -> None:
        self.tables[table].rows.append((writer, one))

    def wrote(self, writer: int, *ids: int, table: int = 0) -> None:
        """`writer` wrote rows and stored that it did; the sequence has given their ids."""
        for one in ids:
            self.insert(writer, one, table)
            self.sequence.move(abs(one))
            self.positions.store(writer, one)


def replicate(*generators: IdGenerator) -> None:
    """Each in turn tells all others where it is."""
    for one in generators:
        position = one.announce()
        for other in generators:
            other.advance(one.writer, position)


def write(generator: IdGenerator, count: int = 1) -> list[int]:
    with generator.writing(count) as ids:
        return ids


@contextmanager
def standing(generator: IdGenerator) -> Iterator[None]:
    """In the block, nothing is visible of what is done."""
    before = (generator.positions, generator.persisted, generator.current_token(generator.writer))
    yield
    assert (generator.positions, generator.persisted, generator.current_token(generator.writer)) == before


# --- The sixteen cases -----------------------------------------------------------------------------


def test_an_empty_stream_is_before_its_first_id() -> None:
    generator = Disk().start()
    assert generator.positions == {1: 0}
    assert generator.persisted == 0
    assert generator.allocate() == [1]


def test_one_writer_moves_when_its_id_is_finished() -> None:
    disk = Disk()
    disk.wrote(1, *range(1, 8))
    generator = disk.start()
    assert (generator.positions, generator.current_token(1)) == ({1: 7}, 7)
    with standing(generator):
        ids = generator.allocate()
        assert ids == [8]
    generator.finish(ids)
    assert (generator.positions, generator.current_token(1)) == ({1: 8}, 8)


def test_ids_finished_out_of_order_show_when_all_below_are_finished() -> None:
    disk = Disk()
    disk.wrote(1, *range(1, 8))
    generator = disk.start()
    first, second, third, fourth = (generator.allocate() for _ in range(4))
    assert first + second + third + fourth == [8, 9, 10, 11]
    seen = []
    for ids in (second, first, fourth, third):
        generator.finish(ids)
        assert generator.current_token(1) == generator.positions[1] == disk.positions.kept[1]
        seen.append(generator.current_token(1))
    assert seen == [7, 9, 9, 11]


def test_an_id_shows_only_after_its_transaction_is_committed() -> None:
    disk = Disk()
    disk.wrote(1, *range(1, 8))
    generator = disk.start()
    with generator.writing() as ids, standing(generator):
        assert ids == [8]
        disk.insert(1, 8)
    assert (generator.positions, generator.current_token(1)) == ({1: 8}, 8)


def test_a_restart_during_out_of_order_storage_sees_only_stored_ids() -> None:
    disk = Disk()
    disk.wrote(1, *range(1, 8))
    generator = disk.start()
    first, second = generator.allocate(), generator.allocate()
    disk.insert(1, *second)
    generator.finish(second)
    restarted = disk.start(READER)
    assert (restarted.positions, restarted.current_token(1)) == ({1: 7}, 7)
    disk.insert(1, *first)
    generator.finish(first)
    assert generator.positions == {1: 9}
    restarted.advance(1, 9)
    assert restarted.positions == {1: 9}


def test_persisted_up_to_follows_what_writers_report() -> None:
    disk = Disk()
    disk.wrote(1, 3)
    disk.wrote(2, 5)
    generator = disk.start(READER, [1, 2])
    assert generator.positions == {1: 3, 2: 5}
    found = [generator.persisted]
    for writer, position in ((1, 6), (2, 7), (2, 9), (1, 8)):
        generator.advance(writer, position)
        found.append(generator.persisted)
    generator.advance(1, 11)
    generator.advance(2, 15)
    assert [*found, generator.persisted] == [3, 6, 7, 7, 9, 11]


def test_the_next_id_comes_after_those_of_all_writers() -> None:
    disk = Disk()
    disk.wrote(1, 3)
    disk.wrote(2, 5)
    generator = disk.start(1, [1, 2])
    assert generator.persisted == 5
    with generator.writing() as ids:
        assert ids == [6]
        assert generator.persisted == 5
    assert generator.persisted == 6


def test_two_instances_know_of_each_other_what_they_were_told() -> None:
    disk = Disk()
    disk.wrote(1, 1, 2, 3)
    first = disk.start(1, [1, 2])
    disk.wrote(2, 4, 5, 6, 7)
    second = disk.start(2, [1, 2])
    replicate(first, second)
    for one in (first, second):
        assert one.positions == {1: 3, 2: 7}
        assert (one.current_token(1), one.current_token(2)) == (7, 7)
    with first.writing() as ids:
        assert ids == [8]
        assert first.positions == second.positions == {1: 3, 2: 7}
        assert first.persisted == 7
    assert first.positions == {1: 8, 2: 7}
    assert second.positions == {1: 3, 2: 7}
    assert write(second) == [9]
    assert second.positions == {1: 3, 2: 9}
    second.advance(1, 8)
    assert second.positions == {1: 8, 2: 9}


def test_a_writer_without_rows_starts_at_the_persisted_position() -> None:
    disk = Disk()
    disk.wrote(1, 1, 2, 3)
    first = disk.start(1, [1, 2, 3])
    disk.wrote(2, 4, 5, 6, 7)
    second, third = disk.start(2, [1, 2, 3]), disk.start(3, [1, 2, 3])
    replicate(first, second, third)
    for one in (first, second, third):
        assert one.positions == {1: 3, 2: 7, 3: 7}
        assert [one.current_token(writer) for writer in (1, 2, 3)] == [7, 7, 7]
    with third.writing() as ids, standing(third):
        assert ids == [8]
    assert third.positions == {1: 3, 2: 7, 3: 8}


def test_writers_are_removed_added_and_added_back() -> None:
    disk = Disk()
    disk.wrote(1, 3)
    disk.wrote(2, 5)
    both = disk.start(READER, [1, 2])
    assert (both.persisted, both.current_token(1), both.current_token(2)) == (3, 3, 5)
    # The first is removed: what it wrote, it had finished.
    second = disk.start(2, [2])
    assert (second.persisted, second.current_token(2)) == (5, 5)
    # A new one alone.
    third = disk.start(3, [3])
    assert (third.persisted, third.current_token(3)) == (5, 5)
    assert disk.start(READER, [3]).current_token(3) == 5
    assert write(third) == [6]
    assert third.persisted == 6
    # The first is back, and its old position is not.
    back = disk.start(READER, [1, 3])
    assert (back.persisted, back.current_token(1), back.current_token(3)) == (6, 6, 6)


def test_a_sequence_behind_a_table_is_repaired_and_said(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.wrote(1, 3)
    disk.insert(1, 26)
    assert disk.start().allocate() == [27]
    assert "ids is at 3, behind the tables; advancing it to 26" in caplog.text


def test_the_minimal_local_token_is_not_moved_by_others() -> None:
    disk = Disk()
    disk.wrote(1, 1, 2, 3)
    first = disk.start(1, [1, 2])
    disk.wrote(2, 4, 5, 6, 7)
    second = disk.start(2, [1, 2])
    replicate(first, second)
    assert (first.minimal_local_token, second.minimal_local_token) == (3, 7)


def test_an_idle_writer_is_as_far_as_it_has_seen_a_busy_one_where_it_was() -> None:
    disk = Disk()
    disk.wrote(1, 1, 2, 3)
    first = disk.start(1, [1, 2, 3])
    disk.wrote(2, 4, 5, 6, 7)
    second = disk.start(2, [1, 2, 3])
    replicate(first, second)

    def seen() -> tuple[int, int, int]:
        return second.current_token(1), second.current_token(2), second.persisted

    assert seen() == (7, 7, 7)
    write(first, 2)
    second.advance(1, 9)
    assert seen() == (9, 9, 7)  # the third has not announced anything
    write(first, 2)
    with second.writing() as ids:
        assert ids == [12]
        second.advance(1, 11)
        assert seen() == (11, 9, 7)
    assert seen() == (11, 12, 7)


def test_a_backward_stream_of_one_writer() -> None:
    disk = Disk(negative=True)
    generator = disk.start()
    with generator.writing() as ids:
        disk.insert(1, *ids)
    assert ids == [-1]
    assert (generator.positions, generator.current_token(1), generator.persisted) == ({1: -1}, -1, -1)
    with generator.writing(3) as ids:
        for one in ids:
            disk.insert(1, one)
    for instance in (generator, disk.start()):
        assert (instance.positions, instance.current_token(1), instance.persisted) == ({1: -4}, -4, -4)


def test_a_backward_stream_of_two_writers() -> None:
    disk = Disk(negative=True)
    first, second = disk.start(1, [1, 2]), disk.start(2, [1, 2])
    assert write(first) == [-1]
    second.advance(1, first.announce())
    assert first.positions == second.positions == {1: -1, 2: 0}
    assert first.persisted == second.persisted == first.current_token(2) == second.current_token(2) == -1
    assert write(second) == [-2]
    first.advance(2, second.announce())
    assert first.positions == second.positions == {1: -1, 2: -2}
    assert first.persisted == second.persisted == -2


def test_ids_in_several_tables_and_rows_past_the_stored_position() -> None:
    disk = Disk()
    disk.wrote(1, 1, 2, 3)
    first = disk.start(1, [1, 2])
    disk.wrote(2, 4, 5, 6, table=1)
    disk.insert(2, 7, table=1)
    disk.sequence.move(7)
    second = disk.start(2, [1, 2])
    replicate(first, second)
    for one in (first, second):
        assert one.positions == {1: 3, 2: 7}
        assert (one.current_token(1), one.current_token(2), one.persisted) == (7, 7, 7)


# --- Failures, races, restarts ---------------------------------------------------------------------


def test_an_id_given_up_does_not_hold_the_position_and_is_not_stored() -> None:
    disk = Disk()
    generator = disk.start()
    with pytest.raises(ZeroDivisionError), generator.writing():
        raise ZeroDivisionError
    assert (generator.positions, generator.persisted) == ({1: 1}, 1)
    assert disk.positions.kept == {1: 0}
    assert write(generator) == [2]
    assert disk.positions.kept == {1: 2}


def test_a_fetch_that_fails_holds_nothing() -> None:
    disk = Disk()
    generator = disk.start()

    def cancelled() -> None:
        raise KeyboardInterrupt

    disk.sequence.during.append(cancelled)
    with pytest.raises(KeyboardInterrupt):
        generator.allocate()
    assert write(generator) == [2]
    assert generator.persisted == 2


def test_ids_that_are_still_being_fetched_are_not_passed() -> None:
    disk = Disk()
    generator = disk.start()
    disk.sequence.during.append(lambda: write(generator))
    with standing(generator):
        slow = generator.allocate()
    assert slow == [1]
    generator.finish(slow)
    assert generator.persisted == 2


def test_a_writer_that_is_slow_to_store_announces_what_is_stored() -> None:
    disk = Disk()
    generator = disk.start()
    disk.positions.broken = True
    with pytest.raises(OSError, match="full"):
        write(generator)
    assert generator.persisted == 1
    with pytest.raises(OSError, match="full"):
        generator.announce()
    disk.positions.broken = False
    assert generator.announce() == disk.positions.kept[1] == 1


def test_ids_of_a_writer_that_died_hold_nobody_once_it_is_back() -> None:
    disk = Disk()
    died, other = disk.start(1, [1, 2]), disk.start(2, [1, 2])
    died.allocate()
    write(other)
    replicate(other)
    assert other.persisted == 0
    back = disk.start(1, [1, 2])
    other.advance(1, back.announce())
    assert other.persisted == 2


def test_a_new_writer_counts_for_those_that_start_after_it() -> None:
    disk = Disk()
    disk.wrote(1, 1, 2)
    new, old = disk.start(2, [1, 2]), disk.start(1, [1, 2])
    assert new.allocate() == [3]
    write(old)
    assert disk.start(READER, [1, 2]).persisted == 2


def test_a_writer_that_starts_while_we_do_is_not_passed() -> None:
    disk = Disk()

    def meanwhile() -> None:
        assert disk.start(2, [1, 2]).allocate(2) == [1, 2]
        disk.insert(2, 2)

    disk.positions.after_load.append(meanwhile)
    assert disk.start(1, [1, 2]).persisted == 0


def test_a_stream_without_rows_goes_on_where_the_removed_writer_was() -> None:
    disk = Disk(tables=[])
    write(disk.start(1, [1]), 3)
    new = disk.start(2, [2])
    assert (new.persisted, new.positions) == (3, {2: 3})


def test_the_stream_moves_on_when_idle_writers_announce() -> None:
    disk = Disk()
    first, second, third = (disk.start(writer, [1, 2, 3]) for writer in (1, 2, 3))
    for _ in range(5):
        write(first)
    assert third.persisted == 0
    for _ in range(2):
        replicate(first, second, third)
    assert {one.persisted for one in (first, second, third)} == {5}
    assert disk.start(READER, [1, 2, 3]).persisted == 5


def test_a_reader_changes_nothing_when_it_starts_and_allocates_nothing() -> None:
    disk = Disk()
    disk.wrote(1, 3)
    disk.wrote(2, 5)
    reader = disk.start(READER, [2])
    assert disk.positions.kept == {1: 3, 2: 5}
    for call in (reader.allocate, reader.announce):
        with pytest.raises(ValueError, match=r"9 is not a writer of this stream; the writers are \[2\]"):
            call()
    assert disk.sequence.given == 5


def test_a_sequence_behind_a_stored_position_is_refused() -> None:
    disk = Disk()
    disk.wrote(1, 3)
    disk.positions.store(1, 26)
    with pytest.raises(Failure, match="behind its stream: ids is at 3, writer 1 has stored position 26"):
        disk.start()


def test_a_sequence_that_gives_an_id_again_is_refused_and_holds_nothing() -> None:
    disk = Disk()
    disk.wrote(1, 3)
    generator = disk.start()
    disk.sequence.given = 1
    with pytest.raises(Failure, match="behind its stream: ids is at 2, id 3 is known already"):
        generator.allocate()
    disk.sequence.given = 3
    assert write(generator) == [4]
    assert generator.persisted == 4


def test_an_id_is_finished_once() -> None:
    generator = Disk().start()
    ids = write(generator)
    with pytest.raises(ValueError, match="1 is not in flight"):
        generator.finish(ids)


@pytest.mark.parametrize("negative", [False, True])
def test_a_stream_that_skips_the_table_begins_at_its_rows(negative: bool) -> None:
    disk = Disk(negative)
    sign = -1 if negative else 1

    def start(writer: int) -> IdGenerator:
        return IdGenerator(writer, [1, 2], disk.sequence, disk.tables, negative=negative)

    first, second = start(1), start(2)
    with first.writing() as ids:
        disk.insert(1, *ids)
    second.advance(1, first.announce())
    assert write(second) == [2 * sign]
    assert (first.persisted, second.persisted) == (sign, 2 * sign)
    assert disk.positions.kept == {}
    assert start(1).positions == {1: sign, 2: sign}
    assert start(1).allocate() == [3 * sign]


# --- Any interleaving ------------------------------------------------------------------------------


class Processes(RuleBasedStateMachine):
    """Three writers and a reader; announcements come late, in any order or never, and processes die."""

    messages: Bundle[tuple[int, int]] = Bundle("messages")
    negative = False

    @initialize()
    def begin(self) -> None:
        self.disk = Disk(self.negative)
        self.running = {who: self.disk.start(who, (1, 2, 3)) for who in (1, 2, 3, READER)}
        self.unfinished: dict[int, list[int]] = {1: [], 2: [], 3: []}
        self.before: dict[int, tuple[int, ...]] = {}
        self.promised = 0  # the furthest position that anybody called persisted

    @rule(writer=st.integers(1, 3), count=st.integers(1, 3))
    def allocate(self, writer: int, count: int) -> None:
        self.unfinished[writer] += self.running[writer].allocate(count)

    @rule(writer=st.integers(1, 3), failed=st.booleans(), data=st.data())
    def finish(self, writer: int, failed: bool, data: st.DataObject) -> None:
        if self.unfinished[writer]:
            one = data.draw(st.sampled_from(self.unfinished[writer]))
            if failed:
                self.running[writer].fail([one])
            else:
                self.commit(writer, one)
                self.running[writer].finish([one])
            self.unfinished[writer].remove(one)

    @rule(writer=st.integers(1, 3))
    def dies_between_commit_and_finish(self, writer: int) -> None:
        if self.unfinished[writer]:
            self.commit(writer, self.unfinished[writer][-1])
            self.restart(writer)

    @rule(who=st.sampled_from((1, 2, 3, READER)))
    def restart(self, who: int) -> None:
        stored = self.disk.positions.load()
        self.unfinished.get(who, []).clear()
        self.before.pop(who, None)
        self.running[who] = again = self.disk.start(who, (1, 2, 3))
        for writer, position in again.positions.items():
            mine = [abs(one) for table in self.disk.tables for by, one in table.rows if by == writer == who]
            assert abs(position) == max([abs(stored[writer]), *mine])  # no more than was stored, and no less

    @rule(target=messages, writer=st.integers(1, 3))
    def announce(self, writer: int) -> tuple[int, int]:
        position = self.running[writer].announce()
        assert self.disk.positions.kept[writer] == position
        return writer, position

    @rule(message=messages, who=st.sampled_from((1, 2, 3, READER)))
    def hear(self, message: tuple[int, int], who: int) -> None:
        self.running[who].advance(*message)

    @rule(writer=st.integers(1, 3))
    def tell_all(self, writer: int) -> None:
        position = self.running[writer].announce()
        for one in self.running.values():
            one.advance(writer, position)

    @rule()
    def all_finish_and_announce(self) -> None:
        for writer, ids in self.unfinished.items():
            self.running[writer].fail(ids)
            ids.clear()
        known = max(abs(p) for one in self.running.values() for p in one.positions.values())
        for _ in range(2):
            for writer in (1, 2, 3):
                for one in self.running.values():
                    one.advance(writer, self.running[writer].announce())
        assert len({one.persisted for one in self.running.values()}) == 1
        assert abs(self.running[READER].persisted) >= known

    def commit(self, writer: int, one: int) -> None:
        assert abs(one) > self.promised
        self.disk.insert(writer, one, table=writer % 2)

    @invariant()
    def nothing_unfinished_is_passed(self) -> None:
        unfinished = [abs(one) for ids in self.unfinished.values() for one in ids]
        for who, one in self.running.items():
            self.promised = max(self.promised, abs(one.persisted))
            assert abs(one.persisted) < min(unfinished, default=self.promised + 1)
            for writer, ids in self.unfinished.items():
                claimed = abs(one.current_token(writer))
                assert claimed < min(map(abs, ids), default=claimed + 1), (who, writer)

    @invariant()
    def nothing_falls(self) -> None:
        for who, one in self.running.items():
            tokens = [one.persisted, one.minimal_local_token, *(one.current_token(w) for w in (1, 2, 3))]
            now = tuple(map(abs, tokens))
            assert all(a <= b for a, b in zip(self.before.get(who, now), now, strict=True))
            self.before[who] = now


class BackwardProcesses(Processes):
    negative = True


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=60, stateful_step_count=30)
TestBackwardProcesses = BackwardProcesses.TestCase
TestBackwardProcesses.settings = settings(max_examples=20, stateful_step_count=30)
