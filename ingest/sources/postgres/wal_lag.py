"""The lag of a Postgres source in seconds: how far its stored position is behind the source."""

import struct
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import psycopg

from ingest.config.sources_file import PostgresSource
from ingest.positions.position import Position, parse_lsn
from ingest.sources.postgres.postgres_connection import Connection

# Limits for a look into a slot that is not in use: milliseconds, and numbers of changes. The first change is usually
# enough; more are read if the server's position is behind the stored one.
_PEEK_MILLISECONDS = 3000
_PEEKED = (1, 100_000)
# A Begin message: type, LSN of the commit, commit time in microseconds since 2000.
_BEGIN = struct.Struct(">cQq")
_EPOCH = 946_684_800

_ASKED = """
SELECT extract(epoch FROM clock_timestamp())::float8,
       (SELECT sent_lsn::text FROM pg_stat_replication WHERE pid = %s),
       redo_lsn::text, extract(epoch FROM checkpoint_time)::float8
FROM pg_control_checkpoint()
"""


def seconds_behind(
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
    row = connection.execute(_ASKED, [slot["active_pid"]]).fetchone()
    assert row is not None
    now: float = row[0]
    sent, redo, checkpoint = row[1:]
    if position.position >= now_lsn:
        return 0.0
    if not slot["active"] and (oldest := _oldest(connection, source, position)) is not None:
        return max(0.0, now - oldest) if oldest else 0.0
    if sent is not None and parse_lsn(sent) >= now_lsn:
        return max(0.0, time.time() - stored_at)
    newest = newest_commit()
    bounds = [newest.timestamp()] if newest else []
    bounds += [checkpoint] if position.position >= parse_lsn(redo) else []
    return max(0.0, now - max(bounds, default=stored_at))


def _oldest(connection: Connection, source: PostgresSource, position: Position) -> float | None:
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
