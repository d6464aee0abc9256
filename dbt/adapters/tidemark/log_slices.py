"""Slices of the log, by which `core.events` numbers the records of a run in parallel. Pure."""

from collections.abc import Iterable

# One record in this many is sampled. A slice has at least 5 sampled records, so about 50,000 records: tasks share many
# slices more equally than few.
SAMPLE = 10_000
_SAMPLES_PER_SLICE = 5
# `seq` in models/core/events.sql has 6 bits for the slice.
_MAX_SLICES = 64

# A place in the log, (commit_lsn, change_lsn).
Place = tuple[int, int]


def slice_starts(sample: Iterable[tuple[str, int, int]]) -> dict[str, list[Place]]:
    """The first place of each slice but the first, by source; without sources that have one slice.

    sample: (source, commit_lsn, change_lsn) of the sampled records. Records with the same place are in one slice.
    """
    places_by_source: dict[str, list[Place]] = {}
    for source, commit_lsn, change_lsn in sample:
        places_by_source.setdefault(source, []).append((commit_lsn, change_lsn))
    starts = {source: _divide(sorted(places)) for source, places in places_by_source.items()}
    return {source: places for source, places in starts.items() if places}


def _divide(places: list[Place]) -> list[Place]:
    slices = min(len(places) // _SAMPLES_PER_SLICE, _MAX_SLICES)
    return sorted({places[number * len(places) // slices] for number in range(1, slices)})
