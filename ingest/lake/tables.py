"""raw.source_tables: which generations of tables there are, and how far the snapshot of each is.

One row per (source, table_id). A row is made by a MERGE and changed by an UPDATE that names the `rev` it
saw, both serializable: of several that try, one wins and the others read again. Readers see whole changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import Row, SparkSession

from ingest.lake.commit import lost_race, retried
from ingest.lake.ddl import SOURCE_TABLES
from ingest.lake.sql import literal

QUEUED, RUNNING, DONE, ENDED = "queued", "running", "done", "ended"


@dataclass(frozen=True)
class Column:
    """A column of the source: name, attnum, type as Postgres writes it."""

    name: str
    attnum: int
    type: str


@dataclass(frozen=True)
class Leaf:
    """A leaf partition, or the table itself: oid, `schema.name`, storage id (another one after a rewrite)."""

    leaf_id: int
    name: str
    storage: int


@dataclass(frozen=True)
class SourceTable:
    """One row of raw.source_tables. key_columns: in key order, None: no key."""

    source: str
    table_id: str
    table_name: str
    relation_id: int
    replica_identity: str
    key_columns: tuple[str, ...] | None
    columns: tuple[Column, ...]
    leaves: tuple[Leaf, ...]
    writer: int = 1
    state: str = QUEUED
    snapshot_id: str | None = None
    snapshot_lsn: int | None = None
    done_lsn: int | None = None
    row_count: int | None = None
    ended_lsn: int | None = None
    note: str | None = None
    rev: int = field(default=1)


_FIELDS = tuple(SourceTable.__dataclass_fields__)
_CASTS = {
    "key_columns": "ARRAY<STRING>",
    "columns": "ARRAY<STRUCT<name: STRING, attnum: INT, type: STRING>>",
    "leaves": "ARRAY<STRUCT<leaf_id: BIGINT, name: STRING, storage: BIGINT>>",
    "writer": "INT",
    "replica_identity": "STRING",
}


class SourceTables:
    """The table, by its rules."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, source: str) -> dict[str, SourceTable]:
        """All generations of the source's tables, by table_id."""
        rows = self._spark.sql(
            f"SELECT {', '.join(_FIELDS)} FROM {SOURCE_TABLES} WHERE source = {literal(source)}"
        ).collect()
        return {row.table_id: _table(row) for row in rows}

    def register(self, table: SourceTable) -> bool:
        """Adds `table` unless its generation is there already; whether it was added by this call."""
        values = ", ".join(f"{_value(table, name)} AS {name}" for name in _FIELDS)
        names = (*_FIELDS, "updated_at")
        # Without a matched clause Spark makes this a plain append, and every racer would win.
        statement = f"""
            MERGE INTO {SOURCE_TABLES} t USING (SELECT {values}, {_now()} AS updated_at) s
            ON t.source = {literal(table.source)} AND t.table_id = {literal(table.table_id)}
            WHEN MATCHED AND t.rev < 0 THEN UPDATE SET rev = t.rev
            WHEN NOT MATCHED THEN INSERT ({", ".join(names)})
            VALUES ({", ".join(f"s.{name}" for name in names)})"""

        def add() -> bool:
            if table.table_id in self.read(table.source):
                return False
            self._spark.sql(statement)
            return True

        return retried(add)

    def change(self, table: SourceTable, **changes: Any) -> SourceTable | None:
        """`table` with `changes`, if it is still as it was read; None: somebody else was first, read again."""
        after = replace(table, **changes, rev=table.rev + 1)
        assignments = [f"{name} = {_value(after, name)}" for name in (*changes, "rev")]
        statement = (
            f"UPDATE {SOURCE_TABLES} SET {', '.join(assignments)}, updated_at = {_now()} "
            f"WHERE source = {literal(table.source)} AND table_id = {literal(table.table_id)} "
            f"AND rev = {literal(table.rev)}"
        )

        def update() -> SourceTable | None:
            if not self._is_at(table):
                return None
            try:
                self._spark.sql(statement)
            except Exception as error:
                # Another row of the same file may have changed: then this one is still as it was.
                if lost_race(error) and not self._is_at(table):
                    return None
                raise
            return after

        changed = retried(update)
        # Zero rows matched is no error; `updated_at` is not unique, so what was written is compared.
        return changed if changed and self._says(after) else None

    def _is_at(self, table: SourceTable) -> bool:
        found = self.read(table.source).get(table.table_id)
        return found is not None and found.rev == table.rev

    def _says(self, table: SourceTable) -> bool:
        return self.read(table.source).get(table.table_id) == table


def _value(table: SourceTable, name: str) -> str:
    value = getattr(table, name)
    if isinstance(value, tuple):
        value = [vars(item) if isinstance(item, Column | Leaf) else item for item in value]
    kind = _CASTS.get(name, "STRING" if value is None or isinstance(value, str) else "BIGINT")
    if value is None and name in ("snapshot_lsn", "done_lsn", "row_count", "ended_lsn"):
        kind = "BIGINT"
    return f"CAST({literal(value)} AS {kind})"


def _now() -> str:
    return literal(datetime.now(timezone.utc))


def _table(row: Row) -> SourceTable:
    found = row.asDict(recursive=True)
    found["key_columns"] = None if found["key_columns"] is None else tuple(found["key_columns"])
    found["columns"] = tuple(Column(**column) for column in found["columns"] or ())
    found["leaves"] = tuple(Leaf(**leaf) for leaf in found["leaves"] or ())
    return SourceTable(**found)


def pending(tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Those that still need work of a snapshotter, in the order of their names."""
    return sorted((t for t in tables if t.state in (QUEUED, RUNNING)), key=lambda t: t.table_name)
