"""`tidemark tail`: the events of all writers of a source as JSON lines, as soon as they are in the lake.

Reads `raw.wal_events` up to each writer's stored position, which may be above the source's minimum. A token holds the
position up to which each writer was printed; reading from a token resumes exactly after it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import orjson
from pyspark.sql import DataFrame, Row, SparkSession

from ingest.common.errors import Failure, UsageError
from ingest.config.sources_file import Settings
from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS
from ingest.lake.sorted_rows import iter_sorted
from ingest.lake.sql_literals import literal
from ingest.positions.position import Position, current_epochs, latest_per_epoch, readable_ranges
from ingest.positions.position_token import Token

# Seconds between two polls for new events.
POLL_SECONDS = 0.5

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


class _TailCursor:
    """The position up to which each writer is printed."""

    def __init__(self, token: Token) -> None:
        self.token = token
        self._positions: dict[int, int] = {}

    def position_of(self, writer: int) -> int:
        """The position of a writer; the minimum for a new one, which has no events before it."""
        return max(self._positions.get(writer, 0), self.token.position(writer))

    def advance(self, positions: Mapping[int, int], awaited_writers: Iterable[int]) -> Token:
        """Advances writers to `positions`; returns the new token.

        awaited_writers: the active writers, and removed ones that are not yet printed to their end. The token's minimum
        is the minimum of these. Other writers stay in the token where they are ahead.
        """
        self._positions |= positions
        minimum = min((self.position_of(writer) for writer in awaited_writers), default=self.token.minimum)
        writers = {*awaited_writers, *self._positions, *dict(self.token.ahead)}
        self.token = Token.from_positions(minimum, {writer: self.position_of(writer) for writer in writers})
        return self.token

    def token_after_gap(self, gaps: Mapping[int, tuple[int, int]], active_writers: Collection[int]) -> Token:
        """The token after the ranges `gaps`."""
        writers = {*active_writers, *gaps, *self._positions, *dict(self.token.ahead)}
        positions = {writer: max(self.position_of(writer), gaps.get(writer, (0, 0))[1]) for writer in writers}
        return Token.from_positions(
            min((positions[writer] for writer in active_writers), default=self.token.minimum), positions
        )


def parse_start(settings: Settings, source: str | None, token: str | None) -> tuple[str, Token | None]:
    """The source and token from the command line; the source may be omitted if there is one. Raises UsageError."""
    names = list(settings.sources)
    if source is None and len(names) > 1:
        raise UsageError(
            "a source is required (several are configured)", "sources.yml", f"Name one of {', '.join(names)}"
        )
    name = settings.source(source or names[0]).name
    try:
        return name, None if token is None else Token.parse(token)
    except ValueError as error:
        raise UsageError(str(error), "--from", "Use the token of a printed line, or s0") from None


def follow(lake: Lake, source: str, token: Token | None, wait: Callable[[float], bool]) -> Iterator[str]:
    """The lines after `token` (None: after the current positions), endlessly. s0: all retained events.

    wait: waits for a number of seconds; returns true to stop. Raises Failure if events after the token were purged or
    lost, or if the token is ahead of the lake.
    """
    stored_positions, active_writers = _read_positions(lake, source)
    starts_at_oldest = token == Token(0)
    if starts_at_oldest:
        cursor = _TailCursor(Token.from_positions(0, lake.sources.read_purged_positions(source)))
    elif token:
        _check_token_reached(source, token, _select_current_positions(stored_positions))
        cursor = _TailCursor(token)
    else:
        cursor = _TailCursor(_make_current_token(_select_current_positions(stored_positions), active_writers))
    while True:
        gaps = {} if starts_at_oldest else _find_gaps(stored_positions, cursor)
        starts_at_oldest = False
        # Events before a gap are printed first.
        ends = {
            writer: gaps.get(writer, (end, end))[0]
            for writer, end in _select_current_positions(stored_positions).items()
        }
        yield from _read_lines(lake, source, cursor, stored_positions, ends, active_writers)
        cursor.advance(ends, active_writers)
        if gaps:
            raise _make_gap_error(source, gaps, cursor.token_after_gap(gaps, active_writers))
        if wait(POLL_SECONDS):
            return
        stored_positions, active_writers = _read_positions(lake, source)


def _read_positions(lake: Lake, source: str) -> tuple[list[Position], frozenset[int]]:
    """The stored positions, and the active writers.

    The writers are read before and after the positions: a writer that is removed in between is printed to its end, and
    one that is added may have received tables at a position below the other writers' stored ones.
    """
    writers_before = lake.sources.read_active_writers(source)
    stored_positions = lake.positions.read(source)
    return stored_positions, writers_before | lake.sources.read_active_writers(source)


def _select_current_positions(stored_positions: Iterable[Position]) -> dict[int, int]:
    return {writer: epoch.position for (_, writer), epoch in current_epochs(stored_positions).items()}


def _make_current_token(ends: Mapping[int, int], active_writers: Collection[int]) -> Token:
    return Token.from_positions(min((ends[writer] for writer in active_writers if writer in ends), default=0), ends)


def _check_token_reached(source: str, token: Token, ends: Mapping[int, int]) -> None:
    last_position = max(ends.values(), default=0)
    if token.minimum > last_position or any(position > ends.get(writer, 0) for writer, position in token.ahead):
        raise Failure(
            f"token {token} is ahead of the lake, whose last position is {last_position}",
            f"source {source}",
            "Use a token that was printed for this source; s0 reads all retained events",
        )


def _find_gaps(stored_positions: Sequence[Position], cursor: _TailCursor) -> dict[int, tuple[int, int]]:
    """By writer: the next range `[from, to)` of its log that was lost, because a new epoch started after it."""
    gaps: dict[int, tuple[int, int]] = {}
    for epoch, next_epoch in pairwise(latest_per_epoch(stored_positions)):
        writer = next_epoch.writer
        is_gap = epoch.writer == writer and epoch.position < next_epoch.start_position
        if is_gap and cursor.position_of(writer) < next_epoch.start_position:
            gaps.setdefault(writer, (epoch.position, next_epoch.start_position))
    return gaps


def _make_gap_error(source: str, gaps: Mapping[int, tuple[int, int]], next_token: Token) -> Failure:
    ranges = ", ".join(f"writer {writer}'s from {start} to {end}" for writer, (start, end) in sorted(gaps.items()))
    return Failure(
        f"the log was lost, with these changes: {ranges}; the tables were snapshotted again",
        f"source {source}",
        f"Read the current rows from core.row_state, and continue with --from {next_token}",
    )


def _read_lines(
    lake: Lake,
    source: str,
    cursor: _TailCursor,
    stored_positions: list[Position],
    ends: Mapping[int, int],
    active_writers: frozenset[int],
) -> Iterator[str]:
    """The events after the cursor up to `ends`, by commit and then by writer."""
    ranges = [
        (writer, max(start, cursor.position_of(writer)), end)
        for writer in ends
        for start, end in readable_ranges(stored_positions, source, writer)
        if cursor.position_of(writer) < end <= ends[writer]
    ]
    if not ranges:
        return
    records = _query_events(lake.spark, source, ranges)
    # Read after the query has pinned its Iceberg snapshot: a purge is stored before it deletes.
    if any(
        cursor.position_of(writer) < purged_position
        for writer, purged_position in lake.sources.read_purged_positions(source).items()
    ):
        raise Failure(
            f"changes after token {cursor.token} were purged, because all models have passed them",
            f"source {source}",
            "Read the current rows from core.row_state, and start with --from s0, which reads all retained events",
        )
    rows = iter_sorted(records, "commit_lsn", "writer", "commit_index")
    for row, is_last in _mark_transaction_ends(_deduplicate(rows)):
        if is_last:
            awaited_writers = {
                *active_writers,
                *(writer for writer, end in ends.items() if cursor.position_of(writer) < end),
            }
            cursor.advance({row.writer: row.commit_lsn + 1}, awaited_writers)
        yield _format_line(row, cursor.token if is_last else None)


def _query_events(spark: SparkSession, source: str, ranges: list[tuple[int, int, int]]) -> DataFrame:
    """The events of (writer, from, to); may have duplicates after a replay."""
    conditions = " OR ".join(
        f"(writer = {w} AND commit_lsn >= {low} AND commit_lsn < {high})" for w, low, high in ranges
    )
    # The overall bounds let Spark skip files by their statistics.
    lowest, highest = min(low for _, low, _ in ranges), max(high for _, _, high in ranges)
    return spark.sql(
        f"SELECT {', '.join(_FIELDS)} FROM {EVENTS} WHERE source = {literal(source)} "
        f"AND commit_lsn >= {lowest} AND commit_lsn < {highest} AND ({conditions})"
    )


def _deduplicate(rows: Iterator[Row]) -> Iterator[Row]:
    previous_key = None
    for row in rows:
        key = (row.writer, row.commit_lsn, row.commit_index)
        if key != previous_key:  # otherwise a duplicate
            yield row
        previous_key = key


def _mark_transaction_ends(rows: Iterator[Row]) -> Iterator[tuple[Row, bool]]:
    """Each row, and whether it is the last one of its transaction by its writer."""
    row = next(rows, None)
    while row is not None:
        next_row = next(rows, None)
        is_same_transaction = next_row is not None and (next_row.writer, next_row.commit_lsn) == (
            row.writer,
            row.commit_lsn,
        )
        yield row, not is_same_transaction
        row = next_row


def _format_line(row: Row, token: Token | None) -> str:
    return orjson.dumps({**row.asDict(), "token": None if token is None else str(token)}).decode()
