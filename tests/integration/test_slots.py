"""Slots and locks on a real server, without a lake."""

import logging
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ingest.common.errors import Failure
from ingest.config.sources_file import PostgresSource
from ingest.sources.postgres.postgres_connection import connect
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.writers import table_assignment
from tests.conftest import Database

NewSource = Callable[..., PostgresSource]


@pytest.fixture
def full(database: Database) -> Iterator[list[str]]:
    """The slots that fill up the server's room for them."""
    room = "select current_setting('max_replication_slots')::int - count(*)::int from pg_replication_slots"
    ((left,),) = database.execute(room)
    names = [f"filler_{number}" for number in range(left)]
    for name in names:
        database.execute("select pg_create_physical_replication_slot(%s)", [name])
    yield names
    for name in names:
        database.execute("select pg_drop_replication_slot(%s)", [name])


def test_a_temporary_slot_waits_for_a_free_slot(
    database: Database, full: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replication_slots, "_FREE_SLOT_POLL_SECONDS", 0)
    calls = count()

    def waiting() -> None:
        if next(calls) == 2:
            database.execute("select pg_drop_replication_slot(%s)", [full.pop()])

    replication_slots.create_slot(database.dsn, None, {}, waiting).close()
    assert caplog.text.count("no free replication slot") == 1
    assert next(calls) > 2


def test_a_writers_slot_does_not_wait_for_a_free_slot(database: Database, full: list[str]) -> None:
    assert full
    with pytest.raises(Failure, match="replication slots are in use.*raise max_replication_slots"):
        replication_slots.create_slot(database.dsn, "one_more", {})


def test_a_wait_for_another_process_is_reported_and_can_be_cancelled(
    database: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_assignment, "_REPORT_SECONDS", 0)
    tries = count()
    with connect(database.dsn) as one, connect(database.dsn) as other:
        with (
            table_assignment.locked(one, source, "tables"),
            caplog.at_level(logging.WARNING),
            pytest.raises(replication_slots.Cancelled),
            table_assignment.locked(other, source, "tables", lambda _: next(tries) == 3),
        ):
            pass
        assert f"for process {one.info.backend_pid} of the server, which changes its tables" in caplog.text
        with table_assignment.locked(other, source, "tables", lambda _: True):
            pass


def test_a_slot_of_a_database_of_any_encoding_is_recognized(database: Database) -> None:
    name = f"café_{database.name}"
    identifier = sql.Identifier(name)
    database.execute(sql.SQL("create database {} encoding 'LATIN1' locale 'C' template template0").format(identifier))
    slot = f"{database.name}_latin1"
    with connect(make_conninfo(database.dsn, dbname=name)) as connection:
        replication_slots.create_slot(connection.info.dsn, slot, {}).close()
        found = replication_slots.read_slot(connection, slot)
        assert found is not None
        assert replication_slots.is_writer_slot(connection, found)
        replication_slots.drop_slot(connection, slot, "shop")
    database.execute(sql.SQL("drop database {} with (force)").format(identifier))
