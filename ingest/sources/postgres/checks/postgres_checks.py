"""`tidemark check` for a Postgres source: all problems that prevent its replication, at once.

Read-only. Each finding names the server, table, publication or slot, and what to do.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import psycopg

from ingest.common import findings
from ingest.common.errors import Failure
from ingest.common.findings import Finding
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.checks.publication_checks import check_publications
from ingest.sources.postgres.checks.table_checks import check_tables
from ingest.sources.postgres.postgres_connection import Connection, connect, describe_endpoint, fail_if_locked
from ingest.sources.postgres.slots import replication_slots, slot_continuity


def check(
    source: PostgresSource, settings: JobSettings, needed: Collection[str] = (), used_slots: Collection[str] = ()
) -> list[Finding]:
    """The findings about server, role, tables, publications and slots, in this order.

    needed: the names of the tables that definitions read. used_slots: those with a position in the lake.
    """
    dsn = source.dsn.get_secret_value()
    try:
        with (
            connect(dsn, connect_timeout_seconds=settings.connect_timeout_seconds) as connection,
            fail_if_locked(connection, source.name),
        ):
            return list(_check(source, settings, connection, needed, used_slots))
    except Failure as error:
        return [findings.finding_from_error(error)]
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        return [Finding("error", f"the check was interrupted ({text})", f"source {source.name}")]


def _check(
    source: PostgresSource,
    settings: JobSettings,
    connection: Connection,
    needed: Collection[str],
    used_slots: Collection[str],
) -> Iterator[Finding]:
    tables = catalog_tables.read_tables(connection, source.selects)
    yield from _check_server(source, settings, connection)
    yield from _check_replication(source, settings, connection)
    yield from check_tables(source, connection, tables, needed)
    yield from check_publications(source, connection, _usable(tables), needed)
    yield from _check_slots(source, connection, used_slots)


def _usable(tables: Sequence[CatalogTable]) -> list[CatalogTable]:
    return [table for table in tables if not table.problem]


_SERVER = """
SELECT current_setting('server_version'), current_setting('wal_level'), pg_is_in_recovery(),
       (SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout')
"""


def _check_server(source: PostgresSource, settings: JobSettings, connection: Connection) -> Iterator[Finding]:
    where = describe_endpoint(source.dsn.get_secret_value())
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    version, wal_level, standby, timeout = row
    yield Finding("ok", f"PostgreSQL {version.partition(' ')[0]}", where)
    if wal_level != "logical":
        yield Finding(
            "error",
            f"wal_level is {wal_level}, so changes can't be read",
            where,
            "Set wal_level = logical in the server's configuration and restart it",
        )
    if standby:
        yield Finding(
            "error",
            "the server is a standby, where no logical message can be written",
            where,
            "Point the DSN at the primary",
        )
    if 0 < timeout < 2000 * settings.status_interval_seconds:
        yield Finding(
            "warning",
            f"wal_sender_timeout is {timeout} ms, and status_interval_seconds {settings.status_interval_seconds:g}: "
            "the server may end the stream as unresponsive",
            where,
            "Raise wal_sender_timeout, or lower status_interval_seconds",
        )


def _check_replication(source: PostgresSource, settings: JobSettings, connection: Connection) -> Iterator[Finding]:
    """Check whether the role may open a replication connection. Only trying tells."""
    dsn = source.dsn.get_secret_value()
    used, most = _senders(connection)
    if used >= most:
        yield Finding(
            "error",
            f"all {most} of max_wal_senders are in use",
            describe_endpoint(dsn),
            "Raise max_wal_senders and restart the server, or stop another reader",
        )
        return
    try:
        seconds = settings.connect_timeout_seconds
        with connect(dsn, replication=True, connect_timeout_seconds=seconds) as replication:
            replication_slots.identify_server(replication)
    except Failure as error:
        ((role,),) = connection.execute("SELECT quote_ident(session_user)").fetchall()
        finding = findings.finding_from_error(error)
        yield replace(finding, fix=finding.fix.replace("ALTER ROLE ...", f"ALTER ROLE {role}"))
        return
    # One for each stream, one for the slot of a snapshot, at least.
    running = sum(bool(s and s["active"]) for s in _slots(source, connection).values())
    if used - running + source.writers + 1 > most:
        yield Finding(
            "warning",
            f"{used} of {most} max_wal_senders are in use; writers need {source.writers}, and each process that takes "
            "snapshots one",
            describe_endpoint(dsn),
            "Raise max_wal_senders and restart the server",
        )


def _senders(connection: Connection) -> tuple[int, int]:
    row = connection.execute(
        "SELECT (SELECT count(*) FROM pg_stat_replication)::int, current_setting('max_wal_senders')::int"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def _slots(source: PostgresSource, connection: Connection) -> dict[str, dict[str, object] | None]:
    names = [source.slot_of(writer) for writer in range(1, source.writers + 1)]
    return {name: replication_slots.read_slot(connection, name) for name in names}


def _check_slots(source: PostgresSource, connection: Connection, used_slots: Collection[str]) -> Iterator[Finding]:
    states = _slots(source, connection)
    for name, state in states.items():
        where = f"source {source.name}, slot {name}"
        if state is None and name not in used_slots:
            yield Finding("ok", "the slot will be created", where)
            continue
        try:
            slot_continuity.check_slot_usable(connection, state, name, source.name)
        except Failure as error:
            yield findings.finding_from_error(error)
            continue
        assert state is not None
        if state["wal_status"] == "unreserved":
            yield Finding(
                "warning",
                "the slot is about to be invalidated: it retains more WAL than the server allows",
                where,
                "Start `tidemark stream`, or raise max_slot_wal_keep_size",
            )
        elif state["active"]:
            yield Finding("ok", f"the slot is being read by process {state['active_pid']}", where)
        else:
            yield Finding("ok", "the slot exists and is not in use", where)
    yield from _check_room_for_slots(source, connection, list(states.values()).count(None))


def _check_room_for_slots(source: PostgresSource, connection: Connection, missing: int) -> Iterator[Finding]:
    row = connection.execute(
        "SELECT count(*)::int, current_setting('max_replication_slots')::int FROM pg_replication_slots"
    ).fetchone()
    assert row is not None
    used, most = row
    if used + missing + 1 <= most:  # one for the slot of a snapshot, at least
        return
    yield Finding(
        "error" if used + missing > most else "warning",
        f"{used} of {most} max_replication_slots are in use; writers need {missing} more, and each process that takes "
        "snapshots one",
        describe_endpoint(source.dsn.get_secret_value()),
        "Drop an unused slot, or raise max_replication_slots and restart the server",
    )
