"""A source with the changes of a production database, drawn from a seed: tables of all shapes and their changes.

The same seed gives the same statements. A statement that the server refuses (a duplicate key) is rolled back alone.
"""

import random
from dataclasses import dataclass, field

import psycopg

from tests.conftest import Database

Connection = psycopg.Connection[tuple[object, ...]]

# Values as SQL expressions, by type.
_VALUES: dict[str, list[str]] = {
    "int": ["0", "7", "-2147483648", "42"],
    "bigint": ["9223372036854775807", "1"],
    "numeric": ["'NaN'", "1e30", "-0.50", "123456789012345678901234567890123456789.5"],
    "text": ["''", "'short'", "'\"quoted\", \\\\ and ''\n\tmore'", "repeat('ä', 1500)", "repeat(md5('x'), 120)"],
    "boolean": ["true", "false"],
    "timestamptz": ["'infinity'", "'2020-02-29 23:59:60+02'", "'0044-03-15 12:00:00 BC'"],
    "date": ["'-infinity'", "'2024-02-29'", "'0001-01-01 BC'"],
    "jsonb": ['\'{"a": [1, null, "ü"]}\'', "'null'", "'[]'"],
    "bytea": ["'\\x'", "'\\x00ff5c'"],
    "double precision": ["'-0'", "'NaN'", "'-Infinity'", "0.1 + 0.2"],
    "interval": ["'1 mon -2 days 03:04:05.6'", "'0'"],
    "int[]": ["'{}'", "'{1,NULL,3}'", "'{{1},{2}}'"],
    "int4range": ["'empty'", "'[1,5)'", "'(,)'"],
}
# Kinds of keys: their columns, with the SQL expression for each in row n.
_KEYS: dict[str, dict[str, str]] = {
    "int": {"id": "{n}"},
    "text": {"id": "'k''\"' || {n}"},
    "uuid": {"id": "lpad({n}::text, 32, '0')::uuid"},
    "composite": {"b": "'b' || {n} % 3", "a": "{n}"},
    "numeric": {"id": "({n} / 2.0)::numeric(10, 2)"},
}
_KEY_TYPES = {
    "int": {"id": "int"},
    "text": {"id": 'text collate "C"'},
    "uuid": {"id": "uuid"},
    "composite": {"a": "int", "b": "text"},
    "numeric": {"id": "numeric(10, 2)"},
}
# How rows are identified: the replica identities that a table can change to without becoming unreplicable.
_SHAPES = {
    "primary key": ("full", "default"),
    "full": ("full",),
    "both": ("full", "default"),
    "index": ("full", "using index {table}_i"),
    "partitions": (),
}
ROWS = 30


@dataclass
class Table:
    """The current shape of one of the workload's tables."""

    name: str
    kind: str
    columns: dict[str, str]
    shape: str

    def key(self, n: int) -> dict[str, str]:
        """The key of row n, as SQL expressions by column."""
        return {column: expression.format(n=n) for column, expression in _KEYS[self.kind].items()}

    def where(self, n: int) -> str:
        """The condition for row n."""
        return " and ".join(f"{column} = {value}" for column, value in self.key(n).items())


@dataclass
class Workload:
    """The tables of a database. `change` commits (or rolls back) a transaction; `alter` alters a table."""

    rng: random.Random
    database: Database
    tables: list[Table] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    table_count: int = 0

    def create(self, count: int) -> None:
        """Creates this number of tables, with rows."""
        for _ in range(count):
            self.add_table()

    def add_table(self) -> None:
        """Creates a table of random shape."""
        draw, self.table_count = self.rng, self.table_count + 1
        kind = draw.choice(list(_KEYS))
        names = [f"c{i}" for i in range(draw.randint(1, 5))]
        columns = {name: draw.choice(list(_VALUES)) for name in names} | {"big": "text"}
        types = {**_KEY_TYPES[kind], **columns}
        order = list(types)
        draw.shuffle(order)
        shape = draw.choice(list(_SHAPES))
        table = Table(f"t{self.table_count}", kind, columns, shape)
        key = ", ".join(_KEYS[kind])
        body = ", ".join(f"{name} {types[name]}{' not null' if name in _KEYS[kind] else ''}" for name in order)
        primary = f", primary key ({key})" if shape in ("primary key", "both", "partitions") else ""
        by = f" partition by hash ({key.split(', ')[0]})" if shape == "partitions" else ""
        statements = [f"create table {table.name} ({body}{primary}){by}"]
        if shape == "partitions":
            statements += [
                f"create table {table.name}_{i} partition of {table.name} for values with (modulus 2, remainder {i})"
                for i in (0, 1)
            ]
        statements.append(f"alter table {table.name} alter big set storage external")
        if shape in ("full", "both"):
            statements.append(f"alter table {table.name} replica identity full")
        if shape == "index":
            statements.append(f"create unique index {table.name}_i on {table.name} ({key})")
            statements.append(f"alter table {table.name} replica identity using index {table.name}_i")
        self.tables.append(table)
        with self.database.connect(autocommit=False) as connection:
            for statement in statements:
                self._execute(connection, statement)
            for n in range(1, draw.choice([1, ROWS, ROWS])):
                self._execute(connection, self._insert(table, n))

    def change(self) -> None:
        """Makes a transaction of random changes."""
        with self.database.connect(autocommit=False) as connection:
            for _ in range(self.rng.choice([1, 1, 2, 3, 8])):
                self._execute(connection, self._statement(self.rng.choice(self.tables)))
                if self.rng.random() < 0.1:
                    connection.execute("savepoint before")
                    self._execute(connection, self._statement(self.rng.choice(self.tables)))
                    connection.execute("rollback to before")
            (connection.rollback if self.rng.random() < 0.1 else connection.commit)()

    def alter(self) -> None:
        """Makes a random alteration of a random table in its own transaction."""
        draw, table = self.rng, self.rng.choice(self.tables)
        column = draw.choice(sorted(table.columns))
        alterations = {
            "add": lambda: self._add_column(table, ""),
            "add with default": lambda: self._add_column(table, " default 5"),
            "add with volatile default": lambda: self._add_column(table, " default (random() * 9)::int"),
            "drop": lambda: self._drop_column(table, column),
            "drop and add": lambda: self._drop_and_add(table, column),
            "rename": lambda: self._rename_column(table, column),
            "widen": lambda: self._widen(table),
            "identity": lambda: self._identify(table),
            "rewrite": lambda: f"vacuum full {table.name}",
            "truncate": lambda: f"truncate {table.name}",
            "table": lambda: self._replace(table),
        }
        statement = alterations[draw.choice(list(alterations))]()
        if statement:
            with self.database.connect() as connection:
                self._execute(connection, statement)

    def _statement(self, table: Table) -> str:
        draw = self.rng
        n, m = draw.randint(1, ROWS), draw.randint(1, ROWS)
        column = draw.choice(sorted(table.columns))
        assign = f"{column} = {self._value(table.columns[column])}"
        moved = ", ".join(f"{name} = {value}" for name, value in table.key(m).items())
        return draw.choice(
            [
                self._insert(table, n),
                self._insert(table, m),
                f"update {table.name} set {assign} where {table.where(n)}",
                f"update {table.name} set {assign}",
                f"update {table.name} set {moved} where {table.where(n)}",
                f"update {table.name} set {moved}, {assign} where {table.where(n)}",
                f"update {table.name} set big = repeat('{n}', 4000) where {table.where(n)}",
                f"delete from {table.name} where {table.where(n)}",
                f"delete from {table.name} where {table.where(n)}; {self._insert(table, n)}",
                f"truncate {table.name}" if draw.random() < 0.2 else self._insert(table, m),
            ]
        )

    def _insert(self, table: Table, n: int) -> str:
        values = {**table.key(n), **{name: self._value(kind) for name, kind in table.columns.items()}}
        return f"insert into {table.name} ({', '.join(values)}) values ({', '.join(values.values())})"

    def _value(self, kind: str) -> str:
        return self.rng.choice([*_VALUES[kind], "null"])

    def _add_column(self, table: Table, default: str) -> str:
        name = f"n{self.rng.randint(1, 10**6)}"
        table.columns[name] = "int"
        return f"alter table {table.name} add {name} int{default}"

    def _drop_column(self, table: Table, column: str) -> str:
        if column == "big":
            return ""
        del table.columns[column]
        return f"alter table {table.name} drop {column}"

    def _drop_and_add(self, table: Table, column: str) -> str:
        if column == "big":
            return ""
        kind = table.columns[column]
        return f"begin; alter table {table.name} drop {column}; alter table {table.name} add {column} {kind}; commit"

    def _rename_column(self, table: Table, column: str) -> str:
        if column == "big":
            return ""
        table.columns[f"{column}_"] = table.columns.pop(column)
        return f"alter table {table.name} rename {column} to {column}_"

    def _widen(self, table: Table) -> str:
        narrow = sorted(name for name, kind in table.columns.items() if kind == "int")
        if not narrow:
            return ""
        table.columns[narrow[0]] = "bigint"
        return f"alter table {table.name} alter {narrow[0]} type bigint"

    def _identify(self, table: Table) -> str:
        if not _SHAPES[table.shape]:
            return ""
        identity = self.rng.choice(_SHAPES[table.shape]).format(table=table.name)
        return f"alter table {table.name} replica identity {identity}"

    def _replace(self, table: Table) -> str:
        self.tables.remove(table)
        self.add_table()
        return f"drop table {table.name}"

    def _execute(self, connection: Connection, statement: str) -> None:
        self.statements.append(statement)
        if connection.autocommit:
            connection.execute(statement.encode())
            return
        connection.execute("savepoint statement")
        try:
            connection.execute(statement.encode())
        except psycopg.Error as error:
            self.statements.append(f"-- refused: {error.diag.message_primary}")
            connection.execute("rollback to statement")
