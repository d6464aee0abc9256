"""Positions in a source's log: their text form, the readable ranges, and a source's minimum.

Pure. A position p means: everything with commit_lsn < p is in the lake. All intervals are half-open.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_LSN_LIMIT = 1 << 64


def parse_lsn(text: str) -> int:
    """`16/B374D848` as a number; ValueError if the text is not an LSN."""
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
    """The position of one epoch of a writer: it has committed `[start_position, position)` of its slot.

    A slot that replaces a lost one starts a new epoch, with a higher start. token: identifies the newest event, to
    check that the source's log still contains it.
    """

    source: str
    writer: int
    slot: str
    system_id: str
    timeline: int
    start_position: int
    position: int
    token: str | None = field(default=None, compare=False)

    def advanced_to(self, position: int, token: str | None = None) -> "Position":
        """This at `position` if that is higher, with `token` if one is given."""
        return replace(self, position=max(self.position, position), token=token or self.token)


@dataclass(frozen=True)
class StreamReset:
    """The stream continues at `position` after a failover, on `timeline`."""

    position: int
    timeline: int


def latest_per_epoch(stored: Iterable[Position]) -> list[Position]:
    """The highest position of each (source, writer, slot, system, start); of equal ones the first."""
    highest: dict[tuple[str, int, str, str, int], Position] = {}
    for position in stored:
        key = (position.source, position.writer, position.slot, position.system_id, position.start_position)
        if key not in highest or position.position > highest[key].position:
            highest[key] = position
    return sorted(highest.values(), key=lambda p: (p.source, p.writer, p.start_position))


def current_epochs(stored: Iterable[Position]) -> dict[tuple[str, int], Position]:
    """The newest epoch of each (source, writer): the one with the highest start."""
    return {(position.source, position.writer): position for position in latest_per_epoch(stored)}


def readable_ranges(stored: Iterable[Position], source: str, writer: int) -> list[tuple[int, int]]:
    """The ranges `[start, end)` of a writer's events that may be read, in order; without empty ranges."""
    return [
        (epoch.start_position, epoch.position)
        for epoch in latest_per_epoch(stored)
        if (epoch.source, epoch.writer) == (source, writer) and epoch.position > epoch.start_position
    ]


def min_position(stored: Iterable[Position], source: str, writers: Collection[int] | None = None) -> int | None:
    """The minimum of the positions that the writers of `source` have stored, each in its newest epoch.

    writers: the active writers (None: all with a position). None if there are none, or if one has no position yet.
    """
    positions = {writer: epoch.position for (name, writer), epoch in current_epochs(stored).items() if name == source}
    active = set(positions if writers is None else writers)
    return min(positions[writer] for writer in active) if active and active <= positions.keys() else None
