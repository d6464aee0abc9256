"""`tidemark tail`: a source's landed changes as JSON lines, as soon as they are landed, of all its writers.

Read from `raw.wal_events` by position, each writer's as far as it has stored, ahead of the source's minimum. A token
says how far each writer was printed; whoever goes on from one gets what comes after it, nothing twice or left out.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import orjson
from pyspark.sql import DataFrame, Row, SparkSession

from ingest.common.errors import Failure, UsageError
from ingest.config.sources_file import Settings
from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS
from ingest.lake.sorted_rows import in_order
from ingest.lake.sql_literals import literal
from ingest.positions.position import Position, current, incarnations, visible
from ingest.positions.position_token import Token

# How often it is looked for what has landed.
LOOK_SECONDS = 0.5

_FIELDS = (
    "source",
    "writer",
    "commit_lsn",
    "commit_index",
    "change_lsn",
    """date_format(commit_ts, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX") AS commit_ts""",
    "xid",
    "op",
    "table_name",
    "table_id",
    "partition_id",
    "row_key",
    "old_row_key",
    "is_partial",
    "columns",
)


class _Place:
    """How far each writer is printed."""

    def __init__(self, token: Token) -> None:
        self.token = token
        self._positions: dict[int, int] = {}

    def of(self, writer: int) -> int:
        """A writer that is new has nothing before the minimum."""
        return max(self._positions.get(writer, 0), self.token.position(writer))

    def move(self, positions: Mapping[int, int], waited_for: Iterable[int]) -> Token:
        """The token, now that writers are printed up to `positions`. waited_for: those that count, and those that have
        left but are not yet printed to their end; what others were printed to is kept where it is ahead.
        """
        self._positions |= positions
        minimum = min((self.of(writer) for writer in waited_for), default=self.token.minimum)
        known = {*waited_for, *self._positions, *dict(self.token.ahead)}
        self.token = Token.of(minimum, {writer: self.of(writer) for writer in known})
        return self.token

    def beyond(self, lost: Mapping[int, tuple[int, int]], counting: Collection[int]) -> Token:
        """The token of whoever has got over what is lost."""
        known = {*counting, *lost, *self._positions, *dict(self.token.ahead)}
        positions = {writer: max(self.of(writer), lost.get(writer, (0, 0))[1]) for writer in known}
        return Token.of(min((positions[writer] for writer in counting), default=self.token.minimum), positions)


def begin(settings: Settings, source: str | None, token: str | None) -> tuple[str, Token | None]:
    """What is asked for; the source may be left out where there is one. Raises UsageError."""
    names = list(settings.sources)
    if source is None and len(names) > 1:
        raise UsageError("which source?", "sources.yml", f"Name one of {', '.join(names)}")
    name = settings.source(source or names[0]).name
    try:
        return name, None if token is None else Token.parse(token)
    except ValueError as error:
        raise UsageError(str(error), "--from", "Give the token of a line, or s0") from None


def follow(lake: Lake, source: str, token: Token | None, wait: Callable[[float], bool]) -> Iterator[str]:
    """The lines after `token` (None: from what is landed by now), for ever.

    wait: waits so many seconds for more, true if it is to end. Raises Failure if something after the token is purged,
    where the log was lost, and if nothing is landed up to the token. s0 is all that is kept.
    """
    stored, counting = _look(lake, source)
    takes_what_is_kept = token == Token(0)
    if takes_what_is_kept:
        place = _Place(Token.of(0, lake.purged(source)))
    elif token:
        _check_is_landed(source, token, _ends(stored))
        place = _Place(token)
    else:
        place = _Place(_now(_ends(stored), counting))
    while True:
        lost = {} if takes_what_is_kept else _lost(stored, place)
        takes_what_is_kept = False
        # What was landed before a gap comes first.
        ends = {writer: lost.get(writer, (end, end))[0] for writer, end in _ends(stored).items()}
        yield from _lines(lake, source, place, stored, ends, counting)
        place.move(ends, counting)
        if lost:
            raise _gap(source, lost, place.beyond(lost, counting))
        if wait(LOOK_SECONDS):
            return
        stored, counting = _look(lake, source)


def _look(lake: Lake, source: str) -> tuple[list[Position], frozenset[int]]:
    """What is stored, and who counts. Asked before and after: one that leaves in between is waited for once more, to
    its end; one that comes may have been given tables before what the others have stored by now.
    """
    before = lake.writers(source)
    stored = lake.positions(source)
    return stored, before | lake.writers(source)


def _ends(stored: Iterable[Position]) -> dict[int, int]:
    return {writer: one.position for (_, writer), one in current(stored).items()}


def _now(ends: Mapping[int, int], counting: Collection[int]) -> Token:
    return Token.of(min((ends[writer] for writer in counting if writer in ends), default=0), ends)


def _check_is_landed(source: str, token: Token, ends: Mapping[int, int]) -> None:
    last = max(ends.values(), default=0)
    if token.minimum > last or any(position > ends.get(writer, 0) for writer, position in token.ahead):
        raise Failure(
            f"token {token} is ahead of all that is landed, which goes up to {last}",
            f"source {source}",
            "Give a token that was printed for this source; s0 is all that is kept",
        )


def _lost(stored: Sequence[Position], place: _Place) -> dict[int, tuple[int, int]]:
    """Of each writer the next stretch `[from, to)` of its log that never came, as it had to begin anew behind it."""
    found: dict[int, tuple[int, int]] = {}
    for before, after in pairwise(incarnations(stored)):
        writer = after.writer
        is_gap = before.writer == writer and before.position < after.start_position
        if is_gap and place.of(writer) < after.start_position:
            found.setdefault(writer, (before.position, after.start_position))
    return found


def _gap(source: str, lost: Mapping[int, tuple[int, int]], beyond: Token) -> Failure:
    stretches = ", ".join(f"writer {writer}'s from {start} to {end}" for writer, (start, end) in sorted(lost.items()))
    return Failure(
        f"the log was lost, and changes with it: {stretches}; tables were read anew",
        f"source {source}",
        f"Take the rows as they are from core.row_state, and go on with {beyond}",
    )


def _lines(
    lake: Lake,
    source: str,
    place: _Place,
    stored: list[Position],
    ends: Mapping[int, int],
    counting: frozenset[int],
) -> Iterator[str]:
    """What has landed since, by commit and then by writer, up to `ends`."""
    parts = [
        (writer, max(start, place.of(writer)), end)
        for writer in ends
        for start, end in visible(stored, source, writer)
        if place.of(writer) < end <= ends[writer]
    ]
    if not parts:
        return
    records = _records(lake.spark, source, parts)
    # Asked after that pins what is read: who purges tells before he deletes.
    if any(place.of(writer) < purged for writer, purged in lake.purged(source).items()):
        raise Failure(
            f"changes after token {place.token} are purged: all models have passed them",
            f"source {source}",
            "Begin with s0, which is what is kept, and take the rows as they are from core.row_state",
        )
    rows = in_order(records, "commit_lsn", "writer", "commit_index")
    for row, is_last in _ends_of_transactions(_once(rows)):
        if is_last:
            waited_for = {*counting, *(writer for writer, end in ends.items() if place.of(writer) < end)}
            place.move({row.writer: row.commit_lsn + 1}, waited_for)
        yield _line(row, place.token if is_last else None)


def _records(spark: SparkSession, source: str, parts: list[tuple[int, int, int]]) -> DataFrame:
    """The records of (writer, from, to); one that was landed twice stands there twice."""
    within = " OR ".join(f"(writer = {w} AND commit_lsn >= {low} AND commit_lsn < {high})" for w, low, high in parts)
    # By numbers that the files' statistics have, besides.
    lowest, highest = min(low for _, low, _ in parts), max(high for _, _, high in parts)
    return spark.sql(
        f"SELECT {', '.join(_FIELDS)} FROM {EVENTS} WHERE source = {literal(source)} "
        f"AND commit_lsn >= {lowest} AND commit_lsn < {highest} AND ({within})"
    )


def _once(rows: Iterator[Row]) -> Iterator[Row]:
    before = None
    for row in rows:
        pair = (row.writer, row.commit_lsn, row.commit_index)
        if pair != before:  # else a replay
            yield row
        before = pair


def _ends_of_transactions(rows: Iterator[Row]) -> Iterator[tuple[Row, bool]]:
    """Each row, and whether it is the last that its writer has of its transaction."""
    held = next(rows, None)
    while held is not None:
        following = next(rows, None)
        same = following is not None and (following.writer, following.commit_lsn) == (held.writer, held.commit_lsn)
        yield held, not same
        held = following


def _line(row: Row, token: Token | None) -> str:
    return orjson.dumps({**row.asDict(), "token": None if token is None else str(token)}).decode()
