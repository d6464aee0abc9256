"""How long a writer has held back its source's minimum position. Pure; times in seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PositionSample:
    """A position that a writer has stored, and when. Superseded samples are deleted from time to time."""

    writer: int
    position: int
    stored_at: float


@dataclass(frozen=True)
class UnreachedChanges:
    """Commit times of the first and last change that other writers have committed and that a writer has not reached."""

    first: float
    last: float


def held_seconds(
    now: float,
    stored: Iterable[PositionSample],
    unreached: Mapping[int, UnreachedChanges],
    snapshot_ends: Iterable[tuple[int, float]],
) -> dict[int, int]:
    """By writer; 0 if no other writer and no snapshot is ahead of it.

    stored: samples of the active writers. unreached: by writer. snapshot_ends: the end position of each snapshot, and
    when it was stored. The lag of a writer that advances slowly is the age difference of its unreached changes.
    """
    rows, ends = list(stored), list(snapshot_ends)
    lags = {}
    for writer in {row.writer for row in rows}:
        newest = max((row for row in rows if row.writer == writer), key=lambda row: (row.position, -row.stored_at))
        since = [
            _first_seen_past(newest, [row for row in rows if row.writer == other])
            for other in {r.writer for r in rows} - {writer}
        ]
        since += [stored_at for end, stored_at in ends if end >= newest.position]
        late = 0.0
        if writer in unreached:
            since.append(unreached[writer].first)
            late = unreached[writer].last - unreached[writer].first
        waits = [max(time, newest.stored_at) for time in since if time is not None]
        lags[writer] = max(0, int(max(late, now - min(waits, default=now))))
    return lags


def _first_seen_past(sample: PositionSample, other: Iterable[PositionSample]) -> float | None:
    """When another writer was first seen past `sample`; None if it is not past it."""
    rows = list(other)
    past = [row.stored_at for row in rows if row.position > sample.position]
    if len(past) == len(rows) and past:
        return sample.stored_at  # older samples were deleted: it may always have been past
    return min(past, default=None)
