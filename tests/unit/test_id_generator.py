"""The id generator: positions and tokens of one or several writers, failures, restarts, and random interleavings."""

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
class MemorySequence:
    """A sequence in memory. on_take: callbacks; each `take` calls one of them, after it has taken its numbers."""

    last_number: int = 0
    name: str = "ids"
    on_take: list[Callable[[], object]] = field(default_factory=list)

    def last(self) -> int:
        return self.last_number

    def take(self, count: int) -> Sequence[int]:
        self.last_number += count
        numbers = range(self.last_number - count + 1, self.last_number + 1)
        if self.on_take:
            self.on_take.pop()()
        return numbers

    def move(self, last: int) -> None:
        self.last_number = max(self.last_number, last)


@dataclass
class MemoryTable:
    """A table in memory; its rows are (writer, id)."""

    name: str
    rows: list[tuple[int, int]] = field(default_factory=list)

    def furthest(self) -> int:
        return max((row_id for _, row_id in self.rows), key=abs, default=0)

    def written(self, after: int) -> Iterable[tuple[int, int]]:
        return [(writer, row_id) for writer, row_id in self.rows if abs(row_id) > abs(after)]


@dataclass
class MemoryPositions:
    """Stored positions in memory. is_full: `store` fails. on_load: callbacks; each `load` calls one of them, after it
    has read the positions.
    """

    by_writer: dict[int, int] = field(default_factory=dict)
    is_full: bool = False
    on_load: list[Callable[[], object]] = field(default_factory=list)

    def load(self) -> Mapping[int, int]:
        loaded = dict(self.by_writer)
        if self.on_load:
            self.on_load.pop()()
        return loaded

    def store(self, writer: int, position: int) -> None:
        if self.is_full:
            raise OSError("the disk is full")
        self.by_writer[writer] = max(position, self.by_writer.get(writer, 0), key=abs)

    def delete(self, writers: Collection[int]) -> None:
        for writer in writers:
            del self.by_writer[writer]


@dataclass
class Storage:
    """What all processes of a stream share: a sequence, tables and stored positions."""

    negative: bool = False
    sequence: MemorySequence = field(default_factory=MemorySequence)
    tables: list[MemoryTable] = field(default_factory=lambda: [MemoryTable("first"), MemoryTable("second")])
    positions: MemoryPositions = field(default_factory=MemoryPositions)

    def start(self, writer: int = 1, writers: Collection[int] = (1,)) -> IdGenerator:
        """A new generator, as a started process has it."""
        return IdGenerator(writer, writers, self.sequence, self.tables, self.positions, self.negative)

    def insert(self, writer: int, row_id: int, table: int = 0) -> None:
        self.tables[table].rows.append((writer, row_id))

    def commit(self, writer: int, *ids: int, table: int = 0) -> None:
        """Insert rows, advance the sequence to their ids, and store the position of `writer`."""
        for row_id in ids:
            self.insert(writer, row_id, table)
            self.sequence.move(abs(row_id))
            self.positions.store(writer, row_id)


def announce_to_all(*generators: IdGenerator) -> None:
    """Each generator in turn announces its position to all of them."""
    for announcer in generators:
        position = announcer.announce()
        for receiver in generators:
            receiver.advance(announcer.writer, position)


def write(generator: IdGenerator, count: int = 1) -> list[int]:
    with generator.writing(count) as ids:
        return ids


@contextmanager
def unchanged(generator: IdGenerator) -> Iterator[None]:
    """Asserts that the block does not change the generator's positions and own token."""
    before = (generator.positions, generator.persisted, generator.current_token(generator.writer))
    yield
    assert (generator.positions, generator.persisted, generator.current_token(generator.writer)) == before


# --- Positions and tokens ---------------------------------------------------------------------------


def test_an_empty_stream_has_position_0() -> None:
    generator = Storage().start()
    assert generator.positions == {1: 0}
    assert generator.persisted == 0
    assert generator.allocate() == [1]


def test_the_position_of_a_writer_moves_when_its_id_is_finished() -> None:
    storage = Storage()
    storage.commit(1, *range(1, 8))
    generator = storage.start()
    assert (generator.positions, generator.current_token(1)) == ({1: 7}, 7)
    with unchanged(generator):
        ids = generator.allocate()
        assert ids == [8]
    generator.finish(ids)
    assert (generator.positions, generator.current_token(1)) == ({1: 8}, 8)


def test_ids_finished_out_of_order_count_when_all_below_are_finished() -> None:
    storage = Storage()
    storage.commit(1, *range(1, 8))
    generator = storage.start()
    first, second, third, fourth = (generator.allocate() for _ in range(4))
    assert first + second + third + fourth == [8, 9, 10, 11]
    tokens = []
    for ids in (second, first, fourth, third):
        generator.finish(ids)
        assert generator.current_token(1) == generator.positions[1] == storage.positions.by_writer[1]
        tokens.append(generator.current_token(1))
    assert tokens == [7, 9, 9, 11]


def test_an_id_counts_only_after_its_transaction_is_committed() -> None:
    storage = Storage()
    storage.commit(1, *range(1, 8))
    generator = storage.start()
    with generator.writing() as ids, unchanged(generator):
        assert ids == [8]
        storage.insert(1, 8)
    assert (generator.positions, generator.current_token(1)) == ({1: 8}, 8)


def test_a_restart_between_out_of_order_ids_loads_the_stored_position() -> None:
    storage = Storage()
    storage.commit(1, *range(1, 8))
    generator = storage.start()
    first, second = generator.allocate(), generator.allocate()
    storage.insert(1, *second)
    generator.finish(second)
    restarted = storage.start(READER)
    assert (restarted.positions, restarted.current_token(1)) == ({1: 7}, 7)
    storage.insert(1, *first)
    generator.finish(first)
    assert generator.positions == {1: 9}
    restarted.advance(1, 9)
    assert restarted.positions == {1: 9}


def test_the_persisted_position_follows_announcements() -> None:
    storage = Storage()
    storage.commit(1, 3)
    storage.commit(2, 5)
    generator = storage.start(READER, [1, 2])
    assert generator.positions == {1: 3, 2: 5}
    persisted = [generator.persisted]
    for writer, position in ((1, 6), (2, 7), (2, 9), (1, 8)):
        generator.advance(writer, position)
        persisted.append(generator.persisted)
    generator.advance(1, 11)
    generator.advance(2, 15)
    assert [*persisted, generator.persisted] == [3, 6, 7, 7, 9, 11]


def test_the_next_id_is_above_the_ids_of_all_writers() -> None:
    storage = Storage()
    storage.commit(1, 3)
    storage.commit(2, 5)
    generator = storage.start(1, [1, 2])
    assert generator.persisted == 5
    with generator.writing() as ids:
        assert ids == [6]
        assert generator.persisted == 5
    assert generator.persisted == 6


def test_positions_of_other_writers_change_only_by_announcements() -> None:
    storage = Storage()
    storage.commit(1, 1, 2, 3)
    first = storage.start(1, [1, 2])
    storage.commit(2, 4, 5, 6, 7)
    second = storage.start(2, [1, 2])
    announce_to_all(first, second)
    for generator in (first, second):
        assert generator.positions == {1: 3, 2: 7}
        assert (generator.current_token(1), generator.current_token(2)) == (7, 7)
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
    storage = Storage()
    storage.commit(1, 1, 2, 3)
    first = storage.start(1, [1, 2, 3])
    storage.commit(2, 4, 5, 6, 7)
    second, third = storage.start(2, [1, 2, 3]), storage.start(3, [1, 2, 3])
    announce_to_all(first, second, third)
    for generator in (first, second, third):
        assert generator.positions == {1: 3, 2: 7, 3: 7}
        assert [generator.current_token(writer) for writer in (1, 2, 3)] == [7, 7, 7]
    with third.writing() as ids, unchanged(third):
        assert ids == [8]
    assert third.positions == {1: 3, 2: 7, 3: 8}


def test_added_and_returning_writers_start_at_the_persisted_position() -> None:
    storage = Storage()
    storage.commit(1, 3)
    storage.commit(2, 5)
    both = storage.start(READER, [1, 2])
    assert (both.persisted, both.current_token(1), both.current_token(2)) == (3, 3, 5)
    # Writer 1 is removed: it has nothing unfinished.
    second = storage.start(2, [2])
    assert (second.persisted, second.current_token(2)) == (5, 5)
    # Writer 3 replaces writer 2.
    third = storage.start(3, [3])
    assert (third.persisted, third.current_token(3)) == (5, 5)
    assert storage.start(READER, [3]).current_token(3) == 5
    assert write(third) == [6]
    assert third.persisted == 6
    # Writer 1 is added again: its old position is not used.
    reader = storage.start(READER, [1, 3])
    assert (reader.persisted, reader.current_token(1), reader.current_token(3)) == (6, 6, 6)


def test_a_sequence_behind_a_table_is_advanced_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    storage.commit(1, 3)
    storage.insert(1, 26)
    assert storage.start().allocate() == [27]
    assert "ids is at 3, behind the tables; advancing it to 26" in caplog.text


def test_the_minimal_local_token_ignores_other_writers() -> None:
    storage = Storage()
    storage.commit(1, 1, 2, 3)
    first = storage.start(1, [1, 2])
    storage.commit(2, 4, 5, 6, 7)
    second = storage.start(2, [1, 2])
    announce_to_all(first, second)
    assert (first.minimal_local_token, second.minimal_local_token) == (3, 7)


def test_the_token_of_an_idle_writer_follows_others_but_not_a_busy_one() -> None:
    storage = Storage()
    storage.commit(1, 1, 2, 3)
    first = storage.start(1, [1, 2, 3])
    storage.commit(2, 4, 5, 6, 7)
    second = storage.start(2, [1, 2, 3])
    announce_to_all(first, second)

    def tokens_of_second() -> tuple[int, int, int]:
        return second.current_token(1), second.current_token(2), second.persisted

    assert tokens_of_second() == (7, 7, 7)
    write(first, 2)
    second.advance(1, 9)
    assert tokens_of_second() == (9, 9, 7)  # writer 3 has not announced its position
    write(first, 2)
    with second.writing() as ids:
        assert ids == [12]
        second.advance(1, 11)
        assert tokens_of_second() == (11, 9, 7)
    assert tokens_of_second() == (11, 12, 7)


def test_a_negative_stream_of_one_writer_counts_down() -> None:
    storage = Storage(negative=True)
    generator = storage.start()
    with generator.writing() as ids:
        storage.insert(1, *ids)
    assert ids == [-1]
    assert (generator.positions, generator.current_token(1), generator.persisted) == ({1: -1}, -1, -1)
    with generator.writing(3) as ids:
        for row_id in ids:
            storage.insert(1, row_id)
    for instance in (generator, storage.start()):
        assert (instance.positions, instance.current_token(1), instance.persisted) == ({1: -4}, -4, -4)


def test_a_negative_stream_of_two_writers_counts_down() -> None:
    storage = Storage(negative=True)
    first, second = storage.start(1, [1, 2]), storage.start(2, [1, 2])
    assert write(first) == [-1]
    second.advance(1, first.announce())
    assert first.positions == second.positions == {1: -1, 2: 0}
    assert first.persisted == second.persisted == first.current_token(2) == second.current_token(2) == -1
    assert write(second) == [-2]
    first.advance(2, second.announce())
    assert first.positions == second.positions == {1: -1, 2: -2}
    assert first.persisted == second.persisted == -2


def test_rows_of_all_tables_past_the_stored_position_count() -> None:
    storage = Storage()
    storage.commit(1, 1, 2, 3)
    first = storage.start(1, [1, 2])
    storage.commit(2, 4, 5, 6, table=1)
    storage.insert(2, 7, table=1)
    storage.sequence.move(7)
    second = storage.start(2, [1, 2])
    announce_to_all(first, second)
    for generator in (first, second):
        assert generator.positions == {1: 3, 2: 7}
        assert (generator.current_token(1), generator.current_token(2), generator.persisted) == (7, 7, 7)


# --- Failures, concurrent starts, restarts ----------------------------------------------------------


def test_an_abandoned_id_does_not_block_the_position_and_is_not_stored() -> None:
    storage = Storage()
    generator = storage.start()
    with pytest.raises(ZeroDivisionError), generator.writing():
        raise ZeroDivisionError
    assert (generator.positions, generator.persisted) == ({1: 1}, 1)
    assert storage.positions.by_writer == {1: 0}
    assert write(generator) == [2]
    assert storage.positions.by_writer == {1: 2}


def test_a_failed_allocation_does_not_block_the_position() -> None:
    storage = Storage()
    generator = storage.start()

    def cancel() -> None:
        raise KeyboardInterrupt

    storage.sequence.on_take.append(cancel)
    with pytest.raises(KeyboardInterrupt):
        generator.allocate()
    assert write(generator) == [2]
    assert generator.persisted == 2


def test_the_position_does_not_pass_ids_that_are_being_allocated() -> None:
    storage = Storage()
    generator = storage.start()
    storage.sequence.on_take.append(lambda: write(generator))
    with unchanged(generator):
        slow = generator.allocate()
    assert slow == [1]
    generator.finish(slow)
    assert generator.persisted == 2


def test_only_stored_positions_are_announced() -> None:
    storage = Storage()
    generator = storage.start()
    storage.positions.is_full = True
    with pytest.raises(OSError, match="full"):
        write(generator)
    assert generator.persisted == 1
    with pytest.raises(OSError, match="full"):
        generator.announce()
    storage.positions.is_full = False
    assert generator.announce() == storage.positions.by_writer[1] == 1


def test_unfinished_ids_of_a_killed_writer_block_only_until_it_restarts() -> None:
    storage = Storage()
    killed, other = storage.start(1, [1, 2]), storage.start(2, [1, 2])
    killed.allocate()
    write(other)
    announce_to_all(other)
    assert other.persisted == 0
    restarted = storage.start(1, [1, 2])
    other.advance(1, restarted.announce())
    assert other.persisted == 2


def test_a_new_writer_counts_for_processes_that_start_after_it() -> None:
    storage = Storage()
    storage.commit(1, 1, 2)
    new, old = storage.start(2, [1, 2]), storage.start(1, [1, 2])
    assert new.allocate() == [3]
    write(old)
    assert storage.start(READER, [1, 2]).persisted == 2


def test_the_position_does_not_pass_a_writer_that_starts_concurrently() -> None:
    storage = Storage()

    def start_writer_2() -> None:
        assert storage.start(2, [1, 2]).allocate(2) == [1, 2]
        storage.insert(2, 2)

    storage.positions.on_load.append(start_writer_2)
    assert storage.start(1, [1, 2]).persisted == 0


def test_a_stream_without_tables_continues_at_a_removed_writers_position() -> None:
    storage = Storage(tables=[])
    write(storage.start(1, [1]), 3)
    new = storage.start(2, [2])
    assert (new.persisted, new.positions) == (3, {2: 3})


def test_announcements_of_idle_writers_advance_the_persisted_position() -> None:
    storage = Storage()
    first, second, third = (storage.start(writer, [1, 2, 3]) for writer in (1, 2, 3))
    for _ in range(5):
        write(first)
    assert third.persisted == 0
    for _ in range(2):
        announce_to_all(first, second, third)
    assert {generator.persisted for generator in (first, second, third)} == {5}
    assert storage.start(READER, [1, 2, 3]).persisted == 5


def test_a_reader_stores_no_position_and_allocates_no_ids() -> None:
    storage = Storage()
    storage.commit(1, 3)
    storage.commit(2, 5)
    reader = storage.start(READER, [2])
    assert storage.positions.by_writer == {1: 3, 2: 5}
    for call in (reader.allocate, reader.announce):
        with pytest.raises(ValueError, match=r"9 is not a writer of this stream; the writers are \[2\]"):
            call()
    assert storage.sequence.last_number == 5


def test_a_sequence_behind_a_stored_position_is_refused() -> None:
    storage = Storage()
    storage.commit(1, 3)
    storage.positions.store(1, 26)
    with pytest.raises(Failure, match="behind its stream: ids is at 3, writer 1 has stored position 26"):
        storage.start()


def test_a_repeated_id_is_refused_and_does_not_block_the_position() -> None:
    storage = Storage()
    storage.commit(1, 3)
    generator = storage.start()
    storage.sequence.last_number = 1
    with pytest.raises(Failure, match="behind its stream: ids is at 2, id 3 is known already"):
        generator.allocate()
    storage.sequence.last_number = 3
    assert write(generator) == [4]
    assert generator.persisted == 4


def test_an_id_cannot_be_finished_twice() -> None:
    generator = Storage().start()
    ids = write(generator)
    with pytest.raises(ValueError, match="1 is not in flight"):
        generator.finish(ids)


@pytest.mark.parametrize("negative", [False, True])
def test_without_stored_positions_a_stream_starts_at_its_rows(negative: bool) -> None:
    storage = Storage(negative)
    sign = -1 if negative else 1

    def start(writer: int) -> IdGenerator:
        return IdGenerator(writer, [1, 2], storage.sequence, storage.tables, negative=negative)

    first, second = start(1), start(2)
    with first.writing() as ids:
        storage.insert(1, *ids)
    second.advance(1, first.announce())
    assert write(second) == [2 * sign]
    assert (first.persisted, second.persisted) == (sign, 2 * sign)
    assert storage.positions.by_writer == {}
    assert start(1).positions == {1: sign, 2: sign}
    assert start(1).allocate() == [3 * sign]


# --- Random interleavings --------------------------------------------------------------------------


class Processes(RuleBasedStateMachine):
    """Three writers and a reader. Announcements arrive late, in any order or never, and processes are killed."""

    announcements: Bundle[tuple[int, int]] = Bundle("announcements")
    negative = False

    @initialize()
    def start_processes(self) -> None:
        self.storage = Storage(self.negative)
        self.generators = {process: self.storage.start(process, (1, 2, 3)) for process in (1, 2, 3, READER)}
        self.unfinished: dict[int, list[int]] = {1: [], 2: [], 3: []}
        self.tokens: dict[int, tuple[int, ...]] = {}
        self.highest_persisted = 0  # of all generators, so far

    @rule(writer=st.integers(1, 3), count=st.integers(1, 3))
    def allocate(self, writer: int, count: int) -> None:
        self.unfinished[writer] += self.generators[writer].allocate(count)

    @rule(writer=st.integers(1, 3), failed=st.booleans(), data=st.data())
    def finish(self, writer: int, failed: bool, data: st.DataObject) -> None:
        if self.unfinished[writer]:
            row_id = data.draw(st.sampled_from(self.unfinished[writer]))
            if failed:
                self.generators[writer].fail([row_id])
            else:
                self.insert(writer, row_id)
                self.generators[writer].finish([row_id])
            self.unfinished[writer].remove(row_id)

    @rule(writer=st.integers(1, 3))
    def kill_between_commit_and_finish(self, writer: int) -> None:
        if self.unfinished[writer]:
            self.insert(writer, self.unfinished[writer][-1])
            self.restart(writer)

    @rule(process=st.sampled_from((1, 2, 3, READER)))
    def restart(self, process: int) -> None:
        stored = self.storage.positions.load()
        self.unfinished.get(process, []).clear()
        self.tokens.pop(process, None)
        self.generators[process] = restarted = self.storage.start(process, (1, 2, 3))
        rows = [row for table in self.storage.tables for row in table.rows]
        for writer, position in restarted.positions.items():
            # The stored position; for the process itself, also the ids of its rows.
            own_ids = [abs(row_id) for row_writer, row_id in rows if row_writer == writer == process]
            assert abs(position) == max([abs(stored[writer]), *own_ids])

    @rule(target=announcements, writer=st.integers(1, 3))
    def announce(self, writer: int) -> tuple[int, int]:
        position = self.generators[writer].announce()
        assert self.storage.positions.by_writer[writer] == position
        return writer, position

    @rule(announcement=announcements, process=st.sampled_from((1, 2, 3, READER)))
    def receive(self, announcement: tuple[int, int], process: int) -> None:
        self.generators[process].advance(*announcement)

    @rule(writer=st.integers(1, 3))
    def announce_to_all(self, writer: int) -> None:
        position = self.generators[writer].announce()
        for generator in self.generators.values():
            generator.advance(writer, position)

    @rule()
    def fail_unfinished_and_announce(self) -> None:
        for writer, ids in self.unfinished.items():
            self.generators[writer].fail(ids)
            ids.clear()
        highest = max(abs(p) for generator in self.generators.values() for p in generator.positions.values())
        for _ in range(2):
            for writer in (1, 2, 3):
                for generator in self.generators.values():
                    generator.advance(writer, self.generators[writer].announce())
        assert len({generator.persisted for generator in self.generators.values()}) == 1
        assert abs(self.generators[READER].persisted) >= highest

    def insert(self, writer: int, row_id: int) -> None:
        assert abs(row_id) > self.highest_persisted
        self.storage.insert(writer, row_id, table=writer % 2)

    @invariant()
    def unfinished_ids_are_not_passed(self) -> None:
        unfinished = [abs(row_id) for ids in self.unfinished.values() for row_id in ids]
        for process, generator in self.generators.items():
            self.highest_persisted = max(self.highest_persisted, abs(generator.persisted))
            assert abs(generator.persisted) < min(unfinished, default=self.highest_persisted + 1)
            for writer, ids in self.unfinished.items():
                token = abs(generator.current_token(writer))
                assert token < min(map(abs, ids), default=token + 1), (process, writer)

    @invariant()
    def tokens_never_decrease(self) -> None:
        for process, generator in self.generators.items():
            writer_tokens = (generator.current_token(writer) for writer in (1, 2, 3))
            tokens = tuple(map(abs, (generator.persisted, generator.minimal_local_token, *writer_tokens)))
            assert all(a <= b for a, b in zip(self.tokens.get(process, tokens), tokens, strict=True))
            self.tokens[process] = tokens


class NegativeProcesses(Processes):
    """As `Processes`, with a negative stream."""

    negative = True


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=60, stateful_step_count=30)
TestNegativeProcesses = NegativeProcesses.TestCase
TestNegativeProcesses.settings = settings(max_examples=20, stateful_step_count=30)
