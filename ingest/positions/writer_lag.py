"""How long a writer has held back the others of its source, whose position is their minimum. Pure, times in seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stored:
    """A position that a writer has stored, and when; those that are superseded are forgotten now and then."""

    writer: int
    position: int
    at: float


@dataclass(frozen=True)
class Landed:
    """When the first and the last change were committed that others have landed and that a writer is not past."""

    first: float
    last: float


def held_seconds(
    now: float, stored: Iterable[Stored], landed: Mapping[int, Landed], done: Iterable[tuple[int, float]]
) -> dict[int, int]:
    """By writer; 0 if none waits for it.

    stored: of the writers that count. landed: by writer. done: where snapshots that were read end, and when that was
    told. One that moves on, but slowly, is as late as what it comes to is older than what others have landed.
    """
    rows, ends = list(stored), list(done)
    found = {}
    for writer in {row.writer for row in rows}:
        at = max((row for row in rows if row.writer == writer), key=lambda row: (row.position, -row.at))
        since = [
            _passed(at, [row for row in rows if row.writer == other]) for other in {r.writer for r in rows} - {writer}
        ]
        since += [told for end, told in ends if end >= at.position]
        late = 0.0
        if writer in landed:
            since.append(landed[writer].first)
            late = landed[writer].last - landed[writer].first
        waits = [max(moment, at.at) for moment in since if moment is not None]
        found[writer] = max(0, int(max(late, now - min(waits, default=now))))
    return found


def _passed(at: Stored, other: Iterable[Stored]) -> float | None:
    """When another writer was first seen past `at`; None if it isn't."""
    rows = list(other)
    past = [row.at for row in rows if row.position > at.position]
    if len(past) == len(rows) and past:
        return at.at  # what is left doesn't tell: it may have been past from the beginning
    return min(past, default=None)
