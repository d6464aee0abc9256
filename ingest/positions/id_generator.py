"""Ids for streams that several processes write: unique, and with a position below which all is written.

The edge of `in_flight`: here signs are turned for streams that run backwards, ids taken from the sequence, positions
stored, and threads kept apart. What is stored is behind three protocols; all of their ids and positions
have the stream's sign. An id is allocated before its rows are written, and finished after they are committed.
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
    """Counts 1, 2, 3, ... for all processes, whatever the stream's sign; gaps are fine, going back is not."""

    name: str

    def last(self) -> int:
        """The last number given; 0 before the first."""

    def take(self, count: int) -> Sequence[int]:
        """The next `count` numbers."""

    def move(self, last: int) -> None:
        """Gives only numbers above `last` from now on; no effect if it does already."""


class IdTable(Protocol):
    """A table with ids of the stream, and who wrote them."""

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
        """Keeps `position`, unless one further from 0 is kept already."""

    def forget(self, writers: Collection[int]) -> None:
        """Drops what is kept of `writers`."""


class IdGenerator:
    """The ids of one stream, for the process `writer`; one that is none of `writers` only follows.

    tables: all that hold ids of the stream. stored: None for a stream that need not survive a restart.
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
        # First of all, as it counts only where nothing is stored: rows of a writer that started meanwhile must not.
        furthest = max([0, *(table.furthest() * self._sign for table in tables)])
        kept = {} if stored is None else {w: p * self._sign for w, p in stored.load().items()}
        self._check_sequence(furthest, kept)
        known = {w: p for w, p in kept.items() if w in writers}
        gone = kept.keys() - known.keys()
        rows = self._rows(tables, min(known.values())) if known else []
        # Whoever was removed has finished, and so had all that came before the first position was stored.
        begin = max([furthest, *(kept[w] for w in gone)])
        self._state = Writers(writer, writers, known, rows, begin)
        self._stored_position = known.get(writer, -1)
        if stored is not None and writer in writers:
            # Stored before the first id is taken, so that whoever starts later counts us in. Only then are the others
            # forgotten: one that comes back is a new writer, its old position must not hold the stream.
            self._store()
            stored.forget(gone)

    @property
    def positions(self) -> dict[int, int]:
        """Writer → what it is known to have written up to."""
        with self._lock:
            return {writer: position * self._sign for writer, position in self._state.positions.items()}

    @property
    def persisted(self) -> int:
        """Everything up to this is written, by whomever, or never will be."""
        with self._lock:
            return self._state.persisted * self._sign

    @property
    def minimal_local_token(self) -> int:
        """Own position, not moved on by what others wrote; of a reader, `persisted`."""
        with self._lock:
            return self._state.minimal_local() * self._sign

    def current_token(self, writer: int) -> int:
        """The furthest that can be said of `writer`: it has nothing unfinished up to this."""
        with self._lock:
            return self._state.current(writer) * self._sign

    def allocate(self, count: int = 1) -> list[int]:
        """`count` new ids, each to be finished or failed; ValueError if this process is no writer.

        Failure if the sequence gives what was given before.
        """
        with self._lock:
            floor = self._state.expect()
        fresh: Sequence[int] = ()
        try:
            # Outside of the lock, as it may take long; what was expected keeps the position back meanwhile.
            taken = self._sequence.take(count)
            if min(taken, default=floor + 1) <= floor:
                raise self._behind(min(taken), f"id {floor} is known already")
            fresh = taken
        finally:
            with self._lock:
                self._state.arrived(floor, fresh)
        return [one * self._sign for one in fresh]

    def finish(self, ids: Iterable[int]) -> None:
        """The rows of `ids` are committed; stores the position. ValueError if one is not in flight."""
        self._finish(ids)
        self._store()

    def fail(self, ids: Iterable[int]) -> None:
        """`ids` are given up: no row has them, or ever will. Stored with the next success only."""
        self._finish(ids)

    @contextmanager
    def writing(self, count: int = 1) -> Iterator[list[int]]:
        """Ids for rows that are committed when the block ends; given up if it raises."""
        ids = self.allocate(count)
        try:
            yield ids
        except BaseException:
            self.fail(ids)
            raise
        self.finish(ids)

    def announce(self) -> int:
        """Own position to tell the others, stored first. Told every few seconds, an idle writer holds up nobody.

        ValueError if this process is no writer.
        """
        self._store()
        return self._stored_position * self._sign

    def advance(self, writer: int, position: int) -> None:
        """`writer` announced `position`."""
        with self._lock:
            self._state.advance(writer, position * self._sign)

    def _finish(self, ids: Iterable[int]) -> None:
        with self._lock:
            self._state.finish([one * self._sign for one in ids])

    def _store(self) -> None:
        with self._lock:
            position = self._state.announcement()
        if position > self._stored_position:
            if self._stored is not None:
                self._stored.store(self.writer, position * self._sign)
            with self._lock:
                self._stored_position = max(self._stored_position, position)

    def _rows(self, tables: Sequence[IdTable], after: int) -> list[tuple[int, int]]:
        return [(w, one * self._sign) for t in tables for w, one in t.written(after * self._sign)]

    def _check_sequence(self, furthest: int, kept: Mapping[int, int]) -> None:
        # Read after the others, which go on meanwhile: only the sequence may be ahead.
        if furthest > (last := self._sequence.last()):
            _log.warning("%s was at %d, behind the tables: it is moved to %d", self._sequence.name, last, furthest)
            self._sequence.move(furthest)
        # Rows prove that their ids were given out. A position alone may be another stream's, or its rows are lost.
        position, writer = max(((p, w) for w, p in kept.items()), default=(0, 0))
        last = self._sequence.last()
        if position > last:
            raise self._behind(last, f"writer {writer} has stored position {position * self._sign}")

    def _behind(self, last: int, known: str) -> Failure:
        return Failure(
            "the sequence is behind its stream",
            f"{self._sequence.name} is at {last}, {known}",
            "Find out whether it was restored or reset alone, then set it past all ids that were given out",
        )
