"""Positions in a source's log: their text form, what of the log is visible, and how far a source
is.

Pure. A position p says: everything with commit_lsn < p is landed. All intervals are half-open.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_LSN_LIMIT = 1 << 64


def parse_lsn(text: str) -> int:
    """`16/B374D848` as a number; ValueError if it is none."""
    if not _LSN.fullmatch(text):
        raise ValueError(f"not an LSN: {text!r}")
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def format_lsn(lsn: int) -> str:
    """A number as Postgres writes an LSN."""
    if not 0 <= lsn < _LSN_LIMIT:
        raise ValueError(f"not an LSN: {lsn}")
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class Position:
    """How far one incarnation of a writer is: it has landed `[start_position, position)` of its
    slot.

    Another slot, made after the old one was lost, is another incarnation, with a later start. token: what a source
    whose log could be another one by now is asked for; of its newest event.
    """

    source: str
    writer: int
    slot: str
    system_id: str
    timeline: int
    start_position: int
    position: int
    token: str | None = field(default=None, compare=False)

    def moved(self, position: int, token: str | None = None) -> "Position":
        """This at `position`, or as it is if that is not further on; with a newer token, if there is one."""
        return replace(self, position=max(self.position, position), token=token or self.token)


@dataclass(frozen=True)
class Restart:
    """A stream begins again at `position`, on a timeline that may be a later one: after a failover."""

    position: int
    timeline: int


def incarnations(stored: Iterable[Position]) -> list[Position]:
    """Of each (source, writer, slot, system, start) the furthest, whatever the order they were
    stored in.
    """
    furthest: dict[tuple[str, int, str, str, int], Position] = {}
    for one in stored:
        key = (one.source, one.writer, one.slot, one.system_id, one.start_position)
        if key not in furthest or one.position > furthest[key].position:
            furthest[key] = one
    return sorted(furthest.values(), key=lambda p: (p.source, p.writer, p.start_position))


def current(stored: Iterable[Position]) -> dict[tuple[str, int], Position]:
    """The newest incarnation of each (source, writer): the one that started last."""
    return {(one.source, one.writer): one for one in incarnations(stored)}


def visible(stored: Iterable[Position], source: str, writer: int) -> list[tuple[int, int]]:
    """What of a writer's records may be read, as `[start, end)` in order.

    Empty ones are left out.
    """
    return [
        (one.start_position, one.position)
        for one in incarnations(stored)
        if (one.source, one.writer) == (source, writer) and one.position > one.start_position
    ]


def persisted(stored: Iterable[Position], source: str, writers: Collection[int] | None = None) -> int | None:
    """The position that the writers of `source` have stored, each in its newest incarnation: their minimum.

    writers: those that count (None: all that ever were). None without a writer, or before one has a position.
    """
    found = {writer: one.position for (of, writer), one in current(stored).items() if of == source}
    counting = set(found if writers is None else writers)
    return min(found[writer] for writer in counting) if counting and counting <= found.keys() else None
