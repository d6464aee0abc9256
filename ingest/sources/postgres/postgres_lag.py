"""The lag of a Postgres source, the log that the server retains for its slots, and the slots' problems."""

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from pydantic import ByteSize

from ingest.common.errors import Failure, TidemarkError, one_line
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.held_positions import PositionSample
from ingest.positions.position import Position, parse_lsn
from ingest.sources.interface.source_lag import SourceLag
from ingest.sources.postgres.postgres_connection import Connection, connect
from ingest.sources.postgres.slots import replication_slots, slot_continuity

# Limits for a look into a slot that is not in use: milliseconds, and numbers of changes. The first change is usually
# enough; more are read if the server's position is behind the stored one.
_PEEK_MILLISECONDS = 3000
_PEEKED = (1, 100_000)
# A Begin message: type, LSN of the commit, commit time in microseconds since 2000.
_BEGIN = struct.Struct(">cQq")
_EPOCH = 946_684_800

_SERVER_STATE = """
SELECT extract(epoch FROM clock_timestamp())::float8,
       (SELECT sent_lsn::text FROM pg_stat_replication WHERE pid = %s),
       redo_lsn::text, extract(epoch FROM checkpoint_time)::float8
FROM pg_control_checkpoint()
"""


def read_lag(lake: Lake, source: PostgresSource, settings: JobSettings, positions: Sequence[Position]) -> SourceLag:
    """The state of the log. positions: the stored ones of the active writers. Raises Failure."""
    samples = lake.positions.read_samples(source.name, {position.writer: position for position in positions})
    stored_at = {sample.writer: sample.stored_at for sample in sorted(samples, key=_by_age)}
    retained, problems, lags = 0, [], []
    try:
        with connect(
            source.dsn.get_secret_value(), connect_timeout_seconds=settings.connect_timeout_seconds
        ) as connection:
            current = replication_slots.read_current_lsn(connection)
            for position in positions:
                slot = replication_slots.read_slot(connection, position.slot)
                if slot and slot["restart_lsn"]:
                    retained = max(retained, current - parse_lsn(slot["restart_lsn"]))
                slot_problems = _find_slot_problems(connection, slot, position)
                problems += slot_problems
                if slot and not slot_problems:
                    since = stored_at.get(position.writer, time.time())
                    newest = partial(lake.read_last_commit_time, position)
                    lags.append(_seconds_behind(connection, source, position, slot, current, since, newest))
    except psycopg.Error as error:
        why = one_line(error.diag.message_primary or str(error))
        raise Failure(f"the server rejected a query ({why})", f"source {source.name}") from None
    limit = settings.wal_retention_warning_bytes
    if retained > limit:
        problems.append(
            f"The server keeps {ByteSize(retained).human_readable()} of log for a slot, "
            f"above wal_retention_warning_bytes ({limit.human_readable()}): "
            "make sure that a stream runs, or its disk fills up"
        )
    if not positions:
        return SourceLag(problem=". ".join(problems))
    return SourceLag(
        retained_bytes=retained,
        lag_bytes=max(0, current - min(position.position for position in positions)),
        lag_seconds=max(lags) if len(lags) == len(positions) else None,
        problem=". ".join(problems),
    )


def _by_age(sample: PositionSample) -> tuple[int, float]:
    """Sorts by position; of equal ones the earliest comes last: the time at which the writer reached the position."""
    return sample.position, -sample.stored_at


def _find_slot_problems(connection: Connection, slot: dict[str, Any] | None, position: Position) -> list[str]:
    try:
        slot_continuity.check_slot_usable(connection, slot, position.slot, position.source)
    except TidemarkError as error:
        return [str(error)]
    if slot and slot["wal_status"] == "unreserved":
        name = position.slot
        return [f"Slot {name} is about to be invalidated: the stream is too far behind (max_slot_wal_keep_size)"]
    return []


def _seconds_behind(
    connection: Connection,
    source: PostgresSource,
    position: Position,
    slot: Mapping[str, Any],
    now_lsn: int,
    stored_at: float,
    newest_commit: Callable[[], datetime | None],
) -> float:
    """Seconds since the commit of the oldest change that the lake lacks, or an upper bound; 0: it lacks none.

    position: the writer's stored position; it was reached at `stored_at`. slot: the state of its slot. now_lsn: the
    current LSN of the server. newest_commit: returns the commit time of the writer's newest change in the lake.

    If the slot is not in use, it is searched for the oldest change. If it is, and the server has sent everything, the
    lag is the age of the stored position. Otherwise the missing changes are younger than the newest change in the lake,
    and than the server's last checkpoint if the position is past that.
    """
    row = connection.execute(_SERVER_STATE, [slot["active_pid"]]).fetchone()
    assert row is not None
    now: float = row[0]
    sent, redo, checkpoint = row[1:]
    if position.position >= now_lsn:
        return 0.0
    if not slot["active"] and (oldest := _read_oldest_commit_time(connection, source, position)) is not None:
        return max(0.0, now - oldest) if oldest else 0.0
    if sent is not None and parse_lsn(sent) >= now_lsn:
        return max(0.0, time.time() - stored_at)
    newest = newest_commit()
    bounds = [newest.timestamp()] if newest else []
    bounds += [checkpoint] if position.position >= parse_lsn(redo) else []
    return max(0.0, now - max(bounds, default=stored_at))


def _read_oldest_commit_time(connection: Connection, source: PostgresSource, position: Position) -> float | None:
    """The commit time of the oldest change after a position; 0 if there is none, None if the slot can't be searched."""
    query = """
        SELECT data FROM pg_logical_slot_peek_binary_changes(
            %s, NULL, %s, 'proto_version', '1', 'publication_names', %s
        ) WHERE get_byte(data, 0) = ascii('B')"""
    publication = '"' + source.publication_of(position.writer).replace('"', '""') + '"'
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {_PEEK_MILLISECONDS}".encode())
            for changes in _PEEKED:
                commits = [
                    _BEGIN.unpack_from(row[0])
                    for row in connection.execute(query, [position.slot, changes, publication])
                ]
                if not commits:
                    return 0.0
                for _, commit_lsn, micros in commits:
                    if commit_lsn >= position.position:
                        return float(micros / 1e6 + _EPOCH)
    except psycopg.Error:  # the slot is in use by now, or lost, or has too many changes before the position
        pass
    return None
