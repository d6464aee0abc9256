"""raw.source_tables: the generations of the source's tables, and the state of each one's snapshot.

One row per (source, table_id). Updates are conditional on the `rev` that was read, at serializable
isolation: of several concurrent updates one succeeds, and the other processes read again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import Row, SparkSession

from ingest.lake.cached_reader import CachedReader
from ingest.lake.iceberg_commit import retry_on_conflict
from ingest.lake.raw_schema import SOURCE_TABLES, TABLES
from ingest.lake.sql_literals import literal

QUEUED, RUNNING, DONE, ENDED = "queued", "running", "done", "ended"


@dataclass(frozen=True)
class Column:
    """A column of the source: name, attnum, type as Postgres writes it.

    altered: id of the last transaction that altered it; None: unknown, in a lake of an older version.
    """

    name: str
    attnum: int
    type: str
    altered: int | None = None


@dataclass(frozen=True)
class Partition:
    """A partition, or the table itself if it has none.

    partition_id: oid. name: `schema.name`. storage: relfilenode, which a rewrite changes. attached: ids of the
    transactions that attached it and its parents, from the root on; None: unknown, as for columns.
    """

    partition_id: int
    name: str
    storage: int
    attached: str | None = None


@dataclass(frozen=True)
class SourceTable:
    """One row of raw.source_tables.

    key_columns: in key order; None: no key. snapshot_id, snapshot_lsn: of the running or complete snapshot.
    complete_lsn: the snapshot is complete once the log has been read past this position. ended_lsn: likewise for the
    end of the generation. note: the reason of the state, for people.

    Only for Postgres: attributes: highest column number ever assigned. key_id: oid of the primary key, which changes
    when the key is recreated. published_id: oid of the publication entry, which changes when the table is removed and
    added again. dropped: names of columns dropped since the snapshot, whose values older rows still have. unlogged:
    whether the table was unlogged, in part or as a whole, since the snapshot.
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
    dropped: tuple[str, ...] | None = None
    unlogged: bool | None = None
    rev: int = 1

    @property
    def is_pending(self) -> bool:
        """Whether its snapshot is queued or running."""
        return self.state in (QUEUED, RUNNING)

    def with_changes(self, **changes: Any) -> "SourceTable":
        """The next version of this row, with `changes`; for `SourceTables.upsert`."""
        return replace(self, **changes, rev=self.rev + 1)

    def with_snapshot_queued(self, note: str) -> "SourceTable":
        """The next version of this row, with a new snapshot queued. note: the reason, for people."""
        return self.with_changes(
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
    """Reads and updates the table."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._reader = CachedReader(spark, SOURCE_TABLES)

    def read(self, source: str) -> dict[str, SourceTable]:
        """All generations of the source's tables, by table_id."""
        query = f"SELECT {', '.join(_FIELDS)} FROM {SOURCE_TABLES} WHERE source = {literal(source)}"
        return {row.table_id: _parse_table(row) for row in self._reader.collect(query)}

    def read_version(self) -> tuple[int, int]:
        """A value that changes with each update of a row: the number of rows, and the sum of `rev`."""
        query = f"SELECT count(*) AS registered, coalesce(sum(rev), 0) AS revisions FROM {SOURCE_TABLES}"
        row = self._reader.collect(query)[0]
        return row.registered, row.revisions

    def upsert(self, source: str, rows: Sequence[SourceTable]) -> list[SourceTable]:
        """Inserts or updates rows of `source` in one commit; returns those of `rows` that are in the table afterwards.

        A row with `rev` 1 is inserted if its generation does not exist. Any other row replaces the version before it,
        as `SourceTable.with_changes` makes it. If two processes write equal rows, both see theirs as written: a row
        must hold a value that no other process writes, such as a unique id or a log position.
        """
        if not rows:
            return []
        values = ", ".join(f"({', '.join(_cast_literal(row, name) for name in _FIELDS)})" for row in rows)
        names = ", ".join(_FIELDS)
        # Without a MATCHED clause Spark turns this into an append, which never conflicts: all updates would succeed.
        statement = f"""
            MERGE INTO {SOURCE_TABLES} t
            USING (SELECT {names}, {_now_literal()} AS updated_at FROM VALUES {values} AS v ({names})) s
            ON t.source = {literal(source)} AND t.source = s.source AND t.table_id = s.table_id
            WHEN MATCHED AND t.rev = s.rev - 1 THEN UPDATE SET *
            WHEN NOT MATCHED AND s.rev = 1 THEN INSERT *"""

        retry_on_conflict(
            lambda: self._spark.sql(statement),
            unless=lambda: not any(_is_next_version(*pair) for pair in self._read_current(source, rows)),
        )
        return [row for row, after in self._read_current(source, rows) if row == after]

    def queue_snapshots(self, source: str, note: str, table_names: Collection[str] | None = None) -> list[str]:
        """Queues new snapshots of tables (None: all), also under concurrent updates; returns their names."""
        queued: dict[str, str] = {}
        while tables := [
            table.with_snapshot_queued(note)
            for table_id, table in self.read(source).items()
            if table.state != ENDED
            and table_id not in queued
            and (table_names is None or table.table_name in table_names)
        ]:
            queued |= {table.table_id: table.table_name for table in self.upsert(source, tables)}
        return list(queued.values())

    def _read_current(self, source: str, rows: Sequence[SourceTable]) -> list[tuple[SourceTable, SourceTable | None]]:
        """Each of `rows` with its stored version; None if there is none."""
        stored = self.read(source)
        return [(row, stored.get(row.table_id)) for row in rows]


def _is_next_version(row: SourceTable, before: SourceTable | None) -> bool:
    return row.rev == 1 if before is None else row.rev == before.rev + 1


def _cast_literal(table: SourceTable, name: str) -> str:
    value = getattr(table, name)
    if isinstance(value, tuple):
        value = [vars(item) if isinstance(item, Column | Partition) else item for item in value]
    return f"CAST({literal(value)} AS {TABLES[SOURCE_TABLES].columns[name]})"


def _now_literal() -> str:
    return literal(datetime.now(timezone.utc))


def _parse_table(row: Row) -> SourceTable:
    values = row.asDict(recursive=True)
    values["key_columns"] = None if values["key_columns"] is None else tuple(values["key_columns"])
    values["dropped"] = None if values["dropped"] is None else tuple(values["dropped"])
    values["columns"] = tuple(Column(**column) for column in values["columns"] or ())
    values["partitions"] = tuple(Partition(**partition) for partition in values["partitions"] or ())
    return SourceTable(**values)
