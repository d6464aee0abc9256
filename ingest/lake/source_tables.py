"""raw.source_tables: which generations of tables there are, and how far the snapshot of each is.

One row per (source, table_id), added and changed by one conditional statement that names the `rev`
it saw, at serializable isolation: of several that try, one wins and the others read again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import Row, SparkSession

from ingest.lake.iceberg_commit import retried
from ingest.lake.raw_schema import SOURCE_TABLES, TABLES
from ingest.lake.sql_literals import literal

QUEUED, RUNNING, DONE, ENDED = "queued", "running", "done", "ended"


@dataclass(frozen=True)
class Column:
    """A column of the source: name, attnum, type as Postgres writes it.

    altered: the transaction that last altered it; None: not known, by a lake of an older version.
    """

    name: str
    attnum: int
    type: str
    altered: int | None = None


@dataclass(frozen=True)
class Partition:
    """A leaf partition, or the table itself.

    Oid, `schema.name`, storage id (another one after a rewrite). attached: the transactions that
    attached it, and the partitions above it, from the root on; None: as with columns.
    """

    partition_id: int
    name: str
    storage: int
    attached: str | None = None


@dataclass(frozen=True)
class SourceTable:
    """One row of raw.source_tables.

    key_columns: in key order, None: no key. snapshot_id, snapshot_lsn: of the snapshot that is
    running or done. complete_lsn: it is complete for whoever has read the log up to there. ended_lsn:
    likewise, that it is gone. attributes: how many column numbers had been given out. key_id: another one
    after its primary key was dropped and made again. published_id: another one after the table was taken out
    of its publication and put in again; moving_id: what that is when it was we who moved it to another
    writer's; moved_lsn: a position past the last such move, the highest of all until it is known. dropped:
    names of columns that went since the snapshot, whose values older rows still have. unlogged: since the
    snapshot it was, in part or whole, in no log. All seven are Postgres's.
    """

    source: str
    table_id: str
    table_name: str
    relation_id: int
    replica_identity: str
    key_columns: tuple[str, ...] | None
    columns: tuple[Column, ...]
    partitions: tuple[Partition, ...]
    writer: int = 1
    state: str = QUEUED
    snapshot_id: str | None = None
    snapshot_lsn: int | None = None
    complete_lsn: int | None = None
    row_count: int | None = None
    ended_lsn: int | None = None
    note: str | None = None
    attributes: int | None = None
    key_id: int | None = None
    published_id: int | None = None
    moving_id: int | None = None
    moved_lsn: int | None = None
    dropped: tuple[str, ...] | None = None
    unlogged: bool | None = None
    rev: int = 1

    @property
    def is_pending(self) -> bool:
        """Whether a snapshot of it is still to be taken, or being taken."""
        return self.state in (QUEUED, RUNNING)

    def after(self, **changes: Any) -> "SourceTable":
        """This with `changes`, to be put in its place."""
        return replace(self, **changes, rev=self.rev + 1)

    def queued(self, note: str) -> "SourceTable":
        """This with a new snapshot queued; note: why, for people."""
        return self.after(
            state=QUEUED,
            snapshot_id=None,
            snapshot_lsn=None,
            complete_lsn=None,
            row_count=None,
            ended_lsn=None,
            unlogged=None,
            note=note,
        )


_FIELDS = tuple(SourceTable.__dataclass_fields__)


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

    def put(self, source: str, rows: Sequence[SourceTable]) -> list[SourceTable]:
        """Changes rows of `source`, all in one commit; gives those of `rows` that are in the table
        after it.

        Each row is as it is to be: with `rev` 1 it is added if its generation is not there; else it
        takes the place of the one with the `rev` before, which is what `SourceTable.after` makes.
        Of two that put the same row one wins, so a row says something that no other's does (an id
        of its own, a position in the log).
        """
        if not rows:
            return []
        values = ", ".join(f"({', '.join(_value(row, name) for name in _FIELDS)})" for row in rows)
        names = ", ".join(_FIELDS)
        # Without a matched clause Spark would make this a plain append, and every racer would win.
        statement = f"""
            MERGE INTO {SOURCE_TABLES} t
            USING (SELECT {names}, {_now()} AS updated_at FROM VALUES {values} AS v ({names})) s
            ON t.source = {literal(source)} AND t.source = s.source AND t.table_id = s.table_id
            WHEN MATCHED AND t.rev = s.rev - 1 THEN UPDATE SET *
            WHEN NOT MATCHED AND s.rev = 1 THEN INSERT *"""

        retried(
            lambda: self._spark.sql(statement),
            unless=lambda: not any(_may_follow(*pair) for pair in self._pairs(source, rows)),
        )
        return [row for row, after in self._pairs(source, rows) if row == after]

    def queue(self, source: str, note: str, table_names: Collection[str] | None = None) -> list[str]:
        """Queues new snapshots of tables (None: all), whoever else changes their rows; gives their names."""
        queued: dict[str, str] = {}
        while wanted := [
            table.queued(note)
            for table_id, table in self.read(source).items()
            if table.state != ENDED
            and table_id not in queued
            and (table_names is None or table.table_name in table_names)
        ]:
            queued |= {table.table_id: table.table_name for table in self.put(source, wanted)}
        return list(queued.values())

    def _pairs(self, source: str, rows: Sequence[SourceTable]) -> list[tuple[SourceTable, SourceTable | None]]:
        """`rows` with what the table says of each."""
        found = self.read(source)
        return [(row, found.get(row.table_id)) for row in rows]


def _may_follow(row: SourceTable, before: SourceTable | None) -> bool:
    return row.rev == 1 if before is None else row.rev == before.rev + 1


def _value(table: SourceTable, name: str) -> str:
    value = getattr(table, name)
    if isinstance(value, tuple):
        value = [vars(item) if isinstance(item, Column | Partition) else item for item in value]
    return f"CAST({literal(value)} AS {TABLES[SOURCE_TABLES].columns[name]})"


def _now() -> str:
    return literal(datetime.now(timezone.utc))


def _table(row: Row) -> SourceTable:
    found = row.asDict(recursive=True)
    found["key_columns"] = None if found["key_columns"] is None else tuple(found["key_columns"])
    found["dropped"] = None if found["dropped"] is None else tuple(found["dropped"])
    found["columns"] = tuple(Column(**column) for column in found["columns"] or ())
    found["partitions"] = tuple(Partition(**leaf) for leaf in found["partitions"] or ())
    return SourceTable(**found)
