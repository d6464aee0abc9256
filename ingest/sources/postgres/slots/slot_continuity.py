"""Checks whether a stream can resume at its stored position. A gap after that position is a Failure."""

from typing import Any

from ingest.common.errors import Failure, Unavailable
from ingest.positions.position import Position, format_lsn, parse_lsn
from ingest.sources.postgres.postgres_connection import Connection, run_command
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.slots.replication_slots import ServerIdentity

# What to do about the server's invalidation reasons; for others, the slot retained too much WAL.
_FIXES = {
    "idle_timeout": "Raise idle_replication_slot_timeout, or stream more often",
    "rows_removed": "Set hot_standby_feedback on the standby",
    "wal_level_insufficient": "Set wal_level = logical",
}

_STANDBY_FIX = "Correct the DSN if it is to lead to the primary, or let the standby catch up"


def resnapshot_advice(source: str) -> str:
    """The advice for a source whose WAL is lost."""
    return f"`tidemark resnapshot --all --source {source}` creates a new slot and reads all tables again"


def _slot_resnapshot_advice(source: str) -> str:
    """The advice for one lost slot of a source whose other slots are intact."""
    return f"{resnapshot_advice(source)} (with several writers: `--writer N` instead of `--all`, for one of them)"


def check_continuity(
    connection: Connection, replication: Connection, position: Position, state: dict[str, Any] | None
) -> ServerIdentity:
    """The server's identity, if a stream can resume at `position`. Raises Failure otherwise.

    state: see `check_slot`.
    """
    server = check_log(connection, replication, position)
    check_slot(connection, position, state)
    return server


def check_log(connection: Connection, replication: Connection, position: Position) -> ServerIdentity:
    """The server's identity, if its WAL is the one that `position` belongs to.

    Raises Failure otherwise, Unavailable for a standby that is behind.
    """
    where = f"source {position.source}, slot {position.slot}"
    server = _check_server(replication, position, where)
    current_lsn = replication_slots.read_current_lsn(connection)
    if current_lsn < position.position:
        if replication_slots.is_in_recovery(connection):
            raise Unavailable(
                f"the server is a standby at {format_lsn(current_lsn)}, behind the stored position "
                f"({format_lsn(position.position)})",
                where,
                _STANDBY_FIX,
            )
        raise Failure(
            f"the server's log is at {format_lsn(current_lsn)}, behind the stored position "
            f"({format_lsn(position.position)})",
            where,
            "The server was restored to an earlier point in time; the lake may contain transactions that no longer "
            "exist. Give the source another name in sources.yml, so that it is replicated as a new source",
        )
    return server


def check_slot(connection: Connection, position: Position, state: dict[str, Any] | None) -> None:
    """Raises Failure if the slot no longer has all changes after `position`.

    state: of `read_slot`, which must be read before the position: a running stream stores a position first and
    acknowledges it afterwards.
    """
    check_slot_usable(connection, state, position.slot, position.source)
    assert state is not None
    confirmed = parse_lsn(state["confirmed_flush_lsn"])
    if confirmed > position.position:
        raise Failure(
            f"another client has advanced the slot to {format_lsn(confirmed)}, past the stored position "
            f"({format_lsn(position.position)}), so changes were lost",
            f"source {position.source}, slot {position.slot}",
            f"Find the client that uses the slot; then {_slot_resnapshot_advice(position.source)}",
        )


def check_slot_usable(connection: Connection, state: dict[str, Any] | None, slot: str, source: str) -> None:
    """Raises Failure if no stream can read the slot, Unavailable for a standby without it. state: of `read_slot`."""
    where = f"source {source}, slot {slot}"
    if state is None and replication_slots.is_in_recovery(connection):
        raise Unavailable("the server is a standby without the replication slot", where, _STANDBY_FIX)
    if state is None:
        raise Failure(
            "the replication slot does not exist, so changes are lost", where, _slot_resnapshot_advice(source)
        )
    replication_slots.check_writer_slot(connection, state, slot, source)
    reason = state.get("invalidation_reason") or ("conflict" if state.get("conflicting") else None)
    if state["wal_status"] == "lost" or reason:
        detail = f" ({reason})" if reason else ""
        raise Failure(
            f"the server has invalidated the replication slot{detail}, and changes are lost",
            where,
            f"{_FIXES.get(reason or '', 'Raise max_slot_wal_keep_size')}; then {_slot_resnapshot_advice(source)}",
        )


def _check_server(replication: Connection, position: Position, where: str) -> ServerIdentity:
    server = replication_slots.identify_server(replication)
    if server.system_id != position.system_id:
        raise Failure(
            f"the DSN leads to another database cluster (system {server.system_id}, not {position.system_id})",
            where,
            f"Correct the DSN; if the cluster was replaced for good, {resnapshot_advice(position.source)}",
        )
    if server.timeline != position.timeline:
        _check_timeline(replication, server, position, where)
    return server


def _check_timeline(replication: Connection, server: ServerIdentity, position: Position, where: str) -> None:
    """After a failover: the new timeline must have forked from the old one at or after the stored position."""
    fork = 0
    if server.timeline > position.timeline:
        (row,) = run_command(replication, f"TIMELINE_HISTORY {server.timeline}")
        for line in str(row["content"] or "").splitlines():
            fields = line.split()
            if fields and fields[0] == str(position.timeline):
                fork = parse_lsn(fields[1])
    if fork < position.position:
        raise Failure(
            f"timeline {server.timeline} of the cluster forked at {format_lsn(fork)}, before the stored position "
            f"({format_lsn(position.position)} on timeline {position.timeline})",
            where,
            "The server was restored to an earlier point in time; the lake may contain transactions that no longer "
            f"exist: {resnapshot_advice(position.source)}",
        )
