"""The Postgres table for all measurements: eleven columns of common types, about 150 bytes a row. In two columns a
fifth of the values is NULL.
"""

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ingest.positions.position import parse_lsn
from ingest.sources.postgres.catalog.catalog_tables import emit_marker

_COLUMNS = """
    id bigint primary key, customer int not null, status text not null, amount numeric(12, 2) not null,
    quantity int not null, weight double precision, active boolean not null, created timestamptz not null,
    updated timestamptz not null, email text not null, note text"""
ROW = """
    i, (i::bigint * 7919 % 50000)::int, (array['new', 'paid', 'sent', 'returned'])[1 + i % 4], (i % 100000) / 100.0,
    (i % 10)::int, case when i % 5 > 0 then i / 7.0::float8 end, i % 3 = 0,
    timestamptz '2026-01-01' + i * interval '1 second', timestamptz '2026-02-01' + i * interval '1.5 second',
    'user' || i % 50000 || '@example.com', case when i % 5 > 0 then 'note ' || md5(i::text) end"""


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A connection in autocommit mode."""
    return psycopg.connect(dsn, autocommit=True)


def create_table(dsn: str, table: str, rows: int = 0) -> None:
    """Creates `table` with `rows` rows in one transaction."""
    with connect(dsn) as connection:
        connection.execute(f"create table {table} ({_COLUMNS})".encode())
        insert_rows(connection, table, rows)
        connection.execute(f"vacuum (freeze, analyze) {table}".encode())


def insert_rows(connection: psycopg.Connection[Any], table: str, rows: int, after: int = 0) -> None:
    """Adds rows `after + 1` to `after + rows` in one transaction."""
    connection.execute(f"insert into {table} select {ROW} from generate_series({after + 1}, {after + rows}) i".encode())


def insert_one_by_one(connection: psycopg.Connection[Any], table: str, rows: int) -> None:
    """Adds rows 1 to `rows`, each in its own transaction."""
    loop = f"do $$ begin for i in 1 .. {rows} loop insert into {table} select {ROW}; commit; end loop; end $$"
    connection.execute(loop.encode())


def emit_end_marker(connection: psycopg.Connection[Any]) -> int:
    """A position past all committed changes."""
    return emit_marker(connection)


def pgbench_options(dsn: str) -> list[str]:
    """The options and the database with which pgbench connects to a server."""
    address = conninfo_to_dict(dsn)
    return ["-h", str(address["host"]), "-p", str(address["port"]), "-U", str(address["user"]), str(address["dbname"])]


def drop_slot(dsn: str, slot: str) -> None:
    """Drops a slot, if it exists."""
    with connect(dsn) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [slot]
        )


def drop_slots(dsn: str) -> None:
    """Drops all slots that no process reads."""
    with connect(dsn) as connection:
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")


def copy_slot(dsn: str, slot: str, copy: str) -> int:
    """Copies `slot`, and replaces a slot named `copy`; returns the start position of the copy."""
    drop_slot(dsn, copy)
    with connect(dsn) as connection:
        connection.execute("select pg_copy_logical_replication_slot(%s, %s)", [slot, copy])
        row = connection.execute(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", [copy]
        ).fetchone()
    assert row is not None
    return parse_lsn(row[0])
