"""Unique ids for streams that several processes write, and a position below which everything is written.

Wraps `in_flight`: takes ids from the sequence, stores positions, locks between threads, and inverts signs for negative
streams. Storage is behind three protocols, whose ids and positions have the stream's sign. An id is allocated before
its rows are written, and finished after they are committed.
"""

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from ingest.common.errors import Failure
from ingest.positions.in_flight import Writers

_log = logging.getLogger(__name__)


class IdSequence(Protocol):
    """Counts 1, 2, 3, ... for all processes, whatever the stream's sign; may have gaps, never decreases."""

    name: str

    def last(self) -> int:
        """The last number returned; 0 before the first."""

    def take(self, count: int) -> Sequence[int]:
        """The next `count` numbers."""

    def move(self, last: int) -> None:
        """Returns only numbers above `last` from now on; no effect if the last one is already above."""


class IdTable(Protocol):
    """A table with ids of the stream and their writers."""

    name: str

    def furthest(self) -> int:
        """The id furthest from 0; 0 if the table is empty."""

    def written(self, after: int) -> Iterable[tuple[int, int]]:
        """(writer, id) of the rows further from 0 than `after`."""


class StoredPositions(Protocol):
    """The positions of the stream's writers that survive a restart."""

    def load(self) -> Mapping[int, int]:
        """Writer → position."""

    def store(self, writer: int, position: int) -> None:
        """Stores `position`, unless a position further from 0 is stored."""

    def delete(self, writers: Collection[int]) -> None:
        """Deletes the positions of `writers`."""


class IdGenerator:
    """The ids of one stream, for the process `writer`; a process that is not in `writers` only reads.

    tables: all tables with ids of the stream. stored: None for a stream that need not survive a restart.
    negative: ids are -1, -2, ...; "further" then means lower. Failure if the sequence is behind stored positions.
    """

    def __init__(
        self,
        writer: int,
        writers: Collection[int],
        sequence: IdSequence,
        tables: Sequence[IdTable] = (),
        stored: StoredPositions | None = None,
        negative: bool = False,
    ) -> None:
        self.writer = writer
        self._sequence, self._stored = sequence, stored
        self._sign = -1 if negative else 1
        self._lock = threading.Lock()
        # Read first, as it is used only if nothing is stored: rows of a writer that starts later must not be included.
        furthest = max([0, *(table.furthest() * self._sign for table in tables)])
        stored_positions = {} if stored is None else {w: p * self._sign for w, p in stored.load().items()}
        self._check_sequence(furthest, stored_positions)
        active_positions = {w: p for w, p in stored_positions.items() if w in writers}
        removed = stored_positions.keys() - active_positions.keys()
        rows = self._rows(tables, min(active_positions.values())) if active_positions else []
        # Removed writers have finished, and so have all writers from before the first position was stored.
        begin = max([furthest, *(stored_positions[w] for w in removed)])
        self._state = Writers(writer, writers, active_positions, rows, begin)
        self._stored_position = active_positions.get(writer, -1)
        if stored is not None and writer in writers:
            # Stored before the first id is taken, so that a process that starts later includes this writer. Removed
            # writers are deleted after that: one that returns is new, and its old position must not hold the stream.
            self._store()
            stored.delete(removed)

    @property
    def positions(self) -> dict[int, int]:
        """Writer → the position that it is known to have reached."""
        with self._lock:
            return {writer: position * self._sign for writer, position in self._state.positions.items()}

    @property
    def persisted(self) -> int:
        """Every id up to this is written, by any writer, or never will be."""
        with self._lock:
            return self._state.persisted * self._sign

    @property
    def minimal_local_token(self) -> int:
        """The own position, regardless of other writers; for a reader, `persisted`."""
        with self._lock:
            return self._state.minimal_local() * self._sign

    def current_token(self, writer: int) -> int:
        """The highest position of `writer` that is certain: it has nothing unfinished up to it."""
        with self._lock:
            return self._state.current(writer) * self._sign

    def allocate(self, count: int = 1) -> list[int]:
        """`count` new ids, each to be finished or failed; ValueError if this process is not a writer.

        Failure if the sequence repeats a number.
        """
        with self._lock:
            floor = self._state.expect()
        fresh: Sequence[int] = ()
        try:
            # Without the lock, as it may take long. The expected ids hold the position back in the meantime.
            taken = self._sequence.take(count)
            if min(taken, default=floor + 1) <= floor:
                raise self._behind(min(taken), f"id {floor} is known already")
            fresh = taken
        finally:
            with self._lock:
                self._state.arrived(floor, fresh)
        return [number * self._sign for number in fresh]

    def finish(self, ids: Iterable[int]) -> None:
        """Marks `ids` as committed; stores the position. ValueError for an id that is not in flight."""
        self._finish(ids)
        self._store()

    def fail(self, ids: Iterable[int]) -> None:
        """Abandons `ids`: no row will ever have them. The position is stored with the next success."""
        self._finish(ids)

    @contextmanager
    def writing(self, count: int = 1) -> Iterator[list[int]]:
        """Ids for rows that are committed when the block ends; abandoned if it raises."""
        ids = self.allocate(count)
        try:
            yield ids
        except BaseException:
            self.fail(ids)
            raise
        self.finish(ids)

    def announce(self) -> int:
        """The own position for the other writers, after storing it.

        To be called every few seconds, so that an idle writer does not hold back the others.

        ValueError if this process is not a writer.
        """
        self._store()
        return self._stored_position * self._sign

    def advance(self, writer: int, position: int) -> None:
        """`writer` announced `position`."""
        with self._lock:
            self._state.advance(writer, position * self._sign)

    def _finish(self, ids: Iterable[int]) -> None:
        with self._lock:
            self._state.finish([row_id * self._sign for row_id in ids])

    def _store(self) -> None:
        with self._lock:
            position = self._state.announcement()
        if position > self._stored_position:
            if self._stored is not None:
                self._stored.store(self.writer, position * self._sign)
            with self._lock:
                self._stored_position = max(self._stored_position, position)

    def _rows(self, tables: Sequence[IdTable], after: int) -> list[tuple[int, int]]:
        return [(w, row_id * self._sign) for t in tables for w, row_id in t.written(after * self._sign)]

    def _check_sequence(self, furthest: int, stored_positions: Mapping[int, int]) -> None:
        # Read after tables and positions, which other writers advance: only the sequence may be ahead.
        if furthest > (last := self._sequence.last()):
            _log.warning("%s is at %d, behind the tables; advancing it to %d", self._sequence.name, last, furthest)
            self._sequence.move(furthest)
        # Rows prove that their ids were allocated. A position alone may be another stream's, or its rows were lost.
        position, writer = max(((p, w) for w, p in stored_positions.items()), default=(0, 0))
        last = self._sequence.last()
        if position > last:
            raise self._behind(last, f"writer {writer} has stored position {position * self._sign}")

    def _behind(self, last: int, conflict: str) -> Failure:
        return Failure(
            "the sequence is behind its stream",
            f"{self._sequence.name} is at {last}, {conflict}",
            "Check whether it was restored or reset alone, then set it past all allocated ids",
        )
