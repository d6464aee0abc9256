"""The positions of a stream's writers, as one process knows them. Pure; positions only increase.

`InFlight` tracks the work of one writer, which may finish in any order. `Writers` tracks ids from one sequence: an id
belongs to one writer, and the next id is higher than all ids seen so far. A position p of a writer means: none of its
ids up to p is unfinished. The rules are those of Synapse's MultiWriterIdGenerator.
"""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush


class InFlight:
    """The unfinished work of one writer, and the highest position below which nothing is unfinished.

    A work item is identified by the position that it reaches: an id, or the end of a transaction.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self._begun: list[int] = []
        self._finished: dict[int, bool] = {}
        self._expected: list[int] = []

    @property
    def idle(self) -> bool:
        """Whether nothing is unfinished or expected."""
        return not self._begun and not self._expected

    def expect(self, floor: int) -> None:
        """Announces work above `floor`: until it has arrived, the position stays at or below `floor`."""
        self._expected.append(floor)

    def arrived(self, floor: int, work: Iterable[int]) -> None:
        """Begins the work that was expected above `floor`; empty if there is none."""
        self._expected.remove(floor)
        self.begin(work)
        self._move()

    def begin(self, work: Iterable[int]) -> None:
        """Begins work items, in any order; ValueError for one that is too low or has begun."""
        for item in work:
            if item <= self.position or item in self._finished:
                raise ValueError(f"{item} has already begun, or is not above the position {self.position}")
            self._finished[item] = False
            heappush(self._begun, item)

    def finish(self, work: Iterable[int]) -> None:
        """Finishes work items, in any order; ValueError for one that is not in flight."""
        work = list(work)
        for item in work:
            if self._finished.get(item) is not False:
                raise ValueError(f"{item} is not in flight")
        self._finished.update(dict.fromkeys(work, True))
        self._move()

    def _move(self) -> None:
        limit = min(self._expected, default=None)
        while self._begun and self._finished[self._begun[0]] and (limit is None or self._begun[0] <= limit):
            self.position = heappop(self._begun)
            del self._finished[self.position]


class Writers:
    """The position of each writer of one stream of ids, as the writer `own` or a reader knows it.

    writers: all that may have work in flight. stored: their stored positions; a writer without one (new, or returning)
    starts at the persisted position. rows: (writer, id) of all rows above the minimum of `stored`. begin: the persisted
    position if nothing is stored.
    """

    def __init__(
        self,
        own: int,
        writers: Iterable[int],
        stored: Mapping[int, int],
        rows: Iterable[tuple[int, int]] = (),
        begin: int = 0,
    ) -> None:
        written = list(rows)
        self.own = own
        self.persisted = min(stored.values(), default=begin)
        self._gapped = sorted(row_id for _, row_id in written)  # is a heap
        self._seen = max([self.persisted, *stored.values(), *self._gapped])
        self._close_gaps()
        self._others = {writer: stored.get(writer, self.persisted) for writer in writers}
        self._work: InFlight | None = None
        if own in self._others:
            # Other processes may have ids in flight below their rows. This one has just started and has none.
            own_ids = [self._others.pop(own), *(row_id for writer, row_id in written if writer == own)]
            self._work = InFlight(max(own_ids))
        self._reached = self.persisted
        self._settle()

    @property
    def positions(self) -> dict[int, int]:
        """Writer → the position that it is known to have reached; the actual one may be higher."""
        own = {} if self._work is None else {self.own: self._work.position}
        return dict(sorted({**self._others, **own}.items()))

    def current(self, writer: int) -> int:
        """The highest position of `writer` that is certain: none of its ids up to it is unfinished.

        For the idle own writer: the highest id seen. For an unknown writer: the persisted position.
        """
        if writer == self.own and self._work is not None:
            return self._reached
        return max(self._others.get(writer, self.persisted), self.persisted)

    def minimal_local(self) -> int:
        """The own position; for a reader, the persisted position."""
        return self.persisted if self._work is None else self._work.position

    def announcement(self) -> int:
        """The own current position, for the other writers; ValueError for a reader."""
        self._own_work()
        return self._reached

    def expect(self) -> int:
        """Announces that own ids are being fetched; they will be above the returned id. Call `arrived` next."""
        self._own_work().expect(self._seen)
        return self._seen

    def arrived(self, floor: int, ids: Iterable[int] = ()) -> None:
        """The ids fetched after `expect` returned `floor`; may be empty."""
        ids = list(ids)
        self._own_work().arrived(floor, ids)
        self._seen = max([self._seen, *ids])
        self._settle()

    def finish(self, ids: Iterable[int]) -> None:
        """Own ids that are written or abandoned; ValueError for one that is not in flight."""
        ids = list(ids)
        self._own_work().finish(ids)
        for row_id in ids:
            heappush(self._gapped, row_id)
        self._settle()

    def advance(self, writer: int, position: int) -> None:
        """`writer` announced `position`; a repeated or late announcement changes nothing.

        An unknown writer is active from then on.
        """
        if writer == self.own and self._work is not None:
            return
        if position <= self._others.setdefault(writer, self.persisted):
            return
        self._others[writer] = position
        # A position is the id of finished work, whichever writer announced it.
        heappush(self._gapped, position)
        self._seen = max(self._seen, position)
        self._settle()

    def _own_work(self) -> InFlight:
        if self._work is None:
            raise ValueError(f"{self.own} is not a writer of this stream; the writers are {sorted(self._others)}")
        return self._work

    def _settle(self) -> None:
        claims = list(self._others.values())
        if self._work is not None:
            self._reached = max(self._reached, self._seen if self._work.idle else self._work.position)
            claims.append(self._reached)
        self.persisted = max(self.persisted, min(claims, default=self.persisted))
        self._close_gaps()
        self._reached = max(self._reached, self.persisted)

    def _close_gaps(self) -> None:
        # Past the slowest writer's position, ids that follow one another without a gap are all finished.
        while self._gapped and self._gapped[0] <= self.persisted + 1:
            self.persisted = max(self.persisted, heappop(self._gapped))
