"""The state of a Postgres source's log: its lag, the log that the server retains for the slots, and their problems."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import psycopg
from pydantic import ByteSize

from ingest.common.errors import Failure, TidemarkError, one_line
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.position import Position, parse_lsn
from ingest.positions.writer_lag import PositionSample
from ingest.sources.interface.log_status import LogStatus
from ingest.sources.postgres.postgres_connection import Connection, connect
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.wal_lag import seconds_behind


def read_log_status(
    lake: Lake, source: PostgresSource, settings: JobSettings, positions: Sequence[Position]
) -> LogStatus:
    """The state of the log. positions: the stored ones of the active writers. Raises Failure."""
    samples = lake.read_position_samples(source.name, {position.writer: position for position in positions})
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
                    lags.append(seconds_behind(connection, source, position, slot, current, since, newest))
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
        return LogStatus(problem=". ".join(problems))
    return LogStatus(
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
