"""How far the writers of a stream are, as one process knows it. Pure, positions rise.

`InFlight` is the work of one writer, finished in any order. `Writers` is for ids from one sequence and relies on what
is true of them alone: an id belongs to one writer, and whoever asks next gets a higher one than all that were seen. A
position p of a writer says: none of its ids up to p is unfinished. The rules are those of Synapse's
MultiWriterIdGenerator. A source's streams finish their landings in order, so `positions` has all that they need.
"""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush


class InFlight:
    """What one writer has begun, and the highest position below which none of it is unfinished.

    A piece of work is named by the position that is reached with it: an id, or the end of a transaction.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self._begun: list[int] = []
        self._finished: dict[int, bool] = {}
        self._expected: list[int] = []

    @property
    def idle(self) -> bool:
        """Nothing is unfinished, nor on its way."""
        return not self._begun and not self._expected

    def expect(self, floor: int) -> None:
        """Work above `floor` is on its way: until it has arrived, the position stays at or below that."""
        self._expected.append(floor)

    def arrived(self, floor: int, work: Iterable[int]) -> None:
        """What was expected above `floor` is there, and begun; or isn't coming, and `work` is empty."""
        self._expected.remove(floor)
        self.begin(work)
        self._move()

    def begin(self, work: Iterable[int]) -> None:
        """Begins work, in any order; ValueError if it is behind the position or was begun before."""
        for one in work:
            if one <= self.position or one in self._finished:
                raise ValueError(f"{one} was begun before, or is not above the position {self.position}")
            self._finished[one] = False
            heappush(self._begun, one)

    def finish(self, work: Iterable[int]) -> None:
        """Finishes work, in any order; ValueError if one is not unfinished."""
        work = list(work)
        for one in work:
            if self._finished.get(one) is not False:
                raise ValueError(f"{one} is not in flight")
        self._finished.update(dict.fromkeys(work, True))
        self._move()

    def keepalive(self, position: int) -> None:
        """Empty work, finished at once: an idle writer moves on, a busy one when all before it is finished."""
        if position > max(self._finished, default=self.position):
            self.begin([position])
            self.finish([position])

    def _move(self) -> None:
        limit = min(self._expected, default=None)
        while self._begun and self._finished[self._begun[0]] and (limit is None or self._begun[0] <= limit):
            self.position = heappop(self._begun)
            del self._finished[self.position]


class Writers:
    """Where each writer of one stream of ids is, from the point of view of the writer `own`, or of a reader.

    writers: all that may have work in flight. stored: their stored positions; one without (new, or back after it was
    removed) starts at the persisted position. rows: (writer, id) of what is written above the least of `stored`.
    begin: where the stream is persisted up to if nothing is stored.
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
        self._gapped = sorted(one for _, one in written)  # a heap, too
        self._seen = max([self.persisted, *stored.values(), *self._gapped])
        self._close_gaps()
        self._others = {writer: stored.get(writer, self.persisted) for writer in writers}
        self._work: InFlight | None = None
        if own in self._others:
            # Of another process these rows may be out of order; ours has just begun and has nothing in flight.
            mine = [self._others.pop(own), *(one for writer, one in written if writer == own)]
            self._work = InFlight(max(mine))
        self._reached = self.persisted
        self._settle()

    @property
    def positions(self) -> dict[int, int]:
        """Writer → the position it is known to have written up to; it may be further."""
        own = {} if self._work is None else {self.own: self._work.position}
        return dict(sorted({**self._others, **own}.items()))

    def current(self, writer: int) -> int:
        """The furthest that can be said of `writer`: none of its ids up to this is unfinished.

        An idle writer is as far as all that it has seen; one that is unknown, where the stream is persisted up to.
        """
        if writer == self.own and self._work is not None:
            return self._reached
        return max(self._others.get(writer, self.persisted), self.persisted)

    def minimal_local(self) -> int:
        """Own position; of a reader, where the stream is persisted up to."""
        return self.persisted if self._work is None else self._work.position

    def announcement(self) -> int:
        """Own current position, for the others; ValueError of a reader."""
        self._own_work()
        return self._reached

    def expect(self) -> int:
        """Own ids are being fetched: they will be above the number returned. To be followed by `arrived`."""
        self._own_work().expect(self._seen)
        return self._seen

    def arrived(self, floor: int, ids: Iterable[int] = ()) -> None:
        """The ids that were fetched since `expect` returned `floor`; none if there came none."""
        ids = list(ids)
        self._own_work().arrived(floor, ids)
        self._seen = max([self._seen, *ids])
        self._settle()

    def finish(self, ids: Iterable[int]) -> None:
        """Own ids that are written or given up; ValueError if one is not in flight."""
        ids = list(ids)
        self._own_work().finish(ids)
        for one in ids:
            heappush(self._gapped, one)
        self._settle()

    def advance(self, writer: int, position: int) -> None:
        """`writer` announced `position`; an echo, or one that comes late, changes nothing.

        A writer that nobody told of counts from then on.
        """
        if writer == self.own and self._work is not None:
            return
        if position <= self._others.setdefault(writer, self.persisted):
            return
        self._others[writer] = position
        # Whoever announced it, that id is finished: a position is the id of somebody's finished work.
        heappush(self._gapped, position)
        self._seen = max(self._seen, position)
        self._settle()

    def _own_work(self) -> InFlight:
        if self._work is None:
            raise ValueError(f"{self.own} is no writer of this stream, only {sorted(self._others)} are")
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
