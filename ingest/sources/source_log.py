"""Asks the sources about their logs, for `tidemark status`: the lag, the log that they retain, problems."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any

import psycopg
from pydantic import ByteSize

from ingest.common.errors import Failure, TidemarkError, one_line
from ingest.config.sources_file import PostgresSource, Settings
from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS, POSITIONS
from ingest.lake.sql_literals import literal
from ingest.positions.position import Position, current_epochs, parse_lsn
from ingest.positions.writer_lag import PositionSample
from ingest.sources.mongodb import oplog_lag as mongodb_lag
from ingest.sources.postgres.postgres_connection import Connection, connect
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.wal_lag import seconds_behind


def asked(lake: Lake, settings: Settings, name: str) -> dict[str, Any]:
    """Fields of a SourceStatus: lag, log retained for the slots, problem (also why the source can't be reached)."""
    source = settings.sources[name]
    counting = lake.active_writers(name)
    stored = [one for (_, writer), one in current_epochs(lake.positions(name)).items() if writer in counting]
    try:
        if isinstance(source, PostgresSource):
            return _asked_postgres(lake, settings, source, stored)
        if not stored:
            return {}
        (at,) = stored
        return {"lag_seconds": mongodb_lag.seconds_behind(source, settings.settings, at.position)}
    except TidemarkError as error:
        return {"problem": str(error)}
    except psycopg.Error as error:
        why = one_line(error.diag.message_primary or str(error))
        return {"problem": str(Failure(f"the server rejected a query ({why})", f"source {name}"))}


def _asked_postgres(
    lake: Lake, settings: Settings, source: PostgresSource, stored: Sequence[Position]
) -> dict[str, Any]:
    retained, problems = 0, []
    lag: list[float] = []
    since = {
        one.writer: one.at
        for one in sorted(stored_positions(lake, source.name, {p.writer: p for p in stored}), key=_by_age)
    }
    with connect(
        source.dsn.get_secret_value(), connect_timeout_seconds=settings.settings.connect_timeout_seconds
    ) as connection:
        now = replication_slots.read_current_lsn(connection)
        for at in stored:
            found = replication_slots.read_slot(connection, at.slot)
            if found and found["restart_lsn"]:
                retained = max(retained, now - parse_lsn(found["restart_lsn"]))
            problems += (wrong := _slot_problems(connection, found, at))
            if found and not wrong:
                newest = partial(_newest_landed, lake, at)
                lag.append(
                    seconds_behind(connection, source, at, found, now, since.get(at.writer, time.time()), newest)
                )
    limit = settings.settings.wal_retention_warning_bytes
    if retained > limit:
        problems.append(
            f"The server keeps {ByteSize(retained).human_readable()} of log for a slot, "
            f"above wal_retention_warning_bytes ({limit.human_readable()}): "
            "make sure that a stream runs, or its disk fills up"
        )
    if not stored:
        return {"problem": ". ".join(problems)}
    return {
        "retained_bytes": retained,
        "lag_bytes": max(0, now - min(at.position for at in stored)),
        "lag_seconds": max(lag) if len(lag) == len(stored) else None,
        "problem": ". ".join(problems),
    }


def _by_age(stored: PositionSample) -> tuple[int, float]:
    """Sorts by position; of equal ones the earliest comes last: the time at which the writer reached the position."""
    return stored.position, -stored.at


def _newest_landed(lake: Lake, at: Position) -> datetime | None:
    where = f"source = {literal(at.source)} AND writer = {at.writer} AND commit_lsn < {at.position}"
    micros = lake.spark.sql(f"SELECT unix_micros(max(commit_ts)) FROM {EVENTS} WHERE {where}").collect()[0][0]
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, timezone.utc)


def _slot_problems(connection: Connection, found: dict[str, Any] | None, at: Position) -> list[str]:
    try:
        slot_continuity.check_slot_usable(connection, found, at.slot, at.source)
    except TidemarkError as error:
        return [str(error)]
    if found and found["wal_status"] == "unreserved":
        return [f"Slot {at.slot} is about to be invalidated: the stream is too far behind (max_slot_wal_keep_size)"]
    return []


def stored_positions(lake: Lake, name: str, writers: Mapping[int, Position]) -> list[PositionSample]:
    """The positions that these writers have stored since their start, as far as they are kept."""
    query = (
        "SELECT writer, slot, start_position, position, unix_micros(updated_at) / 1e6D AS at "
        f"FROM {POSITIONS} WHERE source = {literal(name)}"
    )
    begun = {(writer, one.slot, one.start_position) for writer, one in writers.items()}
    rows = lake.spark.sql(query).collect()
    return [PositionSample(r.writer, r.position, r.at) for r in rows if (r.writer, r.slot, r.start_position) in begun]
