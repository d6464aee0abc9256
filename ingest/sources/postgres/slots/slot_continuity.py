"""Whether a stream can go on where it was: every way in which the log can have been lost between the stored position
and the slot is a Failure that says so. A gap is never passed over in silence.
"""

from typing import Any

from ingest.common.errors import Failure
from ingest.positions.position import Position, format_lsn, parse_lsn
from ingest.sources.postgres.postgres_connection import Connection, command
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.slots.replication_slots import System

# What to do about a reason that the server gives; else it kept too much log.
_CAUSES = {
    "idle_timeout": "Raise idle_replication_slot_timeout, or stream more often",
    "rows_removed": "Set hot_standby_feedback on the standby",
    "wal_level_insufficient": "Set wal_level = logical",
}


def resnapshot(source: str) -> str:
    """The advice for a source whose log is lost."""
    return f"`tidemark resnapshot --all --source {source}` makes a new slot and reads all tables again"


def _resnapshot_one(source: str) -> str:
    """The advice for one lost slot of a source whose log is otherwise intact."""
    return f"{resnapshot(source)} (with several writers: `--writer N` instead of `--all`, for one of them)"


def check(connection: Connection, replication: Connection, position: Position, found: dict[str, Any] | None) -> System:
    """The system, if `position` can be gone on from; else raises a Failure that says why not.

    found: see `check_slot`.
    """
    system = check_log(connection, replication, position)
    check_slot(connection, position, found)
    return system


def check_log(connection: Connection, replication: Connection, position: Position) -> System:
    """The system, if its log is the one that `position` is of; else raises a Failure."""
    where = f"source {position.source}, slot {position.slot}"
    system = _check_system(replication, position, where)
    now = replication_slots.current_lsn(connection)
    if now < position.position:
        raise Failure(
            f"the server's log stands at {format_lsn(now)}, behind what is stored ({format_lsn(position.position)})",
            where,
            "It was restored; the lake may hold transactions that are lost there. Give the source another name in "
            "sources.yml, so that it is another source",
        )
    return system


def check_slot(connection: Connection, position: Position, found: dict[str, Any] | None) -> None:
    """Raises a Failure if the slot no longer has all that comes after `position`.

    found: the slot's `state`, asked for before the position was read: who streams stores first, and acknowledges after.
    """
    usable(connection, found, position.slot, position.source)
    assert found is not None
    confirmed = parse_lsn(found["confirmed_flush_lsn"])
    if confirmed > position.position:
        raise Failure(
            f"the slot was advanced by somebody else to {format_lsn(confirmed)}, past what is "
            f"stored ({format_lsn(position.position)}), so changes were lost",
            f"source {position.source}, slot {position.slot}",
            f"Find out who uses the slot; then {_resnapshot_one(position.source)}",
        )


def usable(connection: Connection, found: dict[str, Any] | None, slot: str, source: str) -> None:
    """Raises a Failure if the slot, as `state` gave it, can't be streamed from by anybody."""
    where = f"source {source}, slot {slot}"
    if found is None:
        raise Failure("the replication slot is gone, and changes with it", where, _resnapshot_one(source))
    replication_slots.check_ours(connection, found, slot, source)
    reason = found.get("invalidation_reason") or ("conflict" if found.get("conflicting") else None)
    if found["wal_status"] == "lost" or reason:
        detail = f" ({reason})" if reason else ""
        raise Failure(
            f"the server has invalidated the replication slot{detail}, and changes are lost",
            where,
            f"{_CAUSES.get(reason or '', 'Raise max_slot_wal_keep_size')}; then {_resnapshot_one(source)}",
        )


def _check_system(replication: Connection, position: Position, where: str) -> System:
    system = replication_slots.identify(replication)
    if system.system_id != position.system_id:
        raise Failure(
            f"another database cluster is behind the DSN (system {system.system_id}, not {position.system_id})",
            where,
            f"Correct the DSN; if the cluster was replaced for good, {resnapshot(position.source)}",
        )
    if system.timeline != position.timeline:
        _check_timeline(replication, system, position, where)
    return system


def _check_timeline(replication: Connection, system: System, position: Position, where: str) -> None:
    """After a failover: fine if the new timeline left the old one no earlier than our position."""
    fork = 0
    if system.timeline > position.timeline:
        (row,) = command(replication, f"TIMELINE_HISTORY {system.timeline}")
        for line in str(row["content"] or "").splitlines():
            fields = line.split()
            if fields and fields[0] == str(position.timeline):
                fork = parse_lsn(fields[1])
    if fork < position.position:
        raise Failure(
            f"the cluster went on from {format_lsn(fork)} on timeline {system.timeline}, before what is "
            f"stored ({format_lsn(position.position)} on timeline {position.timeline})",
            where,
            f"It was restored; the lake may hold transactions that are lost there: {resnapshot(position.source)}",
        )
