"""The rules that decide whether DDL made the lake's rows of a table differ from the source's. Pure.

Each rule detects one kind of DDL by comparing a registered generation with the catalog's present state. It returns the
reason for a new snapshot, or None. docs/reference/schema-changes.md lists them. The first rule that applies gives the
reason. The rule for tables without a key comes before them all.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ingest.lake.source_tables import Column, SourceTable

UNLOGGED_REASON = "it was unlogged for a while, and its changes are in no log"


@dataclass(frozen=True)
class CatalogState:
    """The present state of a table in the catalog.

    row: the table as raw.source_tables would register it now. published: exactly one writer's publication publishes all
    of it. published_twice: several publications publish a part of it. columns_with_default: attnums of columns that
    were added with a default. dropped_attnums: attnums of dropped columns. empty_partitions: oids of partitions without
    storage blocks.
    """

    row: SourceTable
    published: bool = True
    published_twice: bool = False
    columns_with_default: frozenset[int] = frozenset()
    dropped_attnums: frozenset[int] = frozenset()
    empty_partitions: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TableChange:
    """A registered generation (`before`) and the same table in the catalog (`now`)."""

    before: SourceTable
    now: CatalogState

    @cached_property
    def columns_before(self) -> dict[int, Column]:
        """The registered columns by attnum."""
        return {column.attnum: column for column in self.before.columns}

    @cached_property
    def names_before(self) -> set[str]:
        """The names of all columns that rows in the lake may have, including dropped columns."""
        return {*column_names(self.before), *(self.before.dropped or ())}

    @cached_property
    def is_rewritten(self) -> bool:
        """Whether the storage of a partition that still exists was replaced."""
        storage = {partition.partition_id: partition.storage for partition in self.now.row.partitions}
        return any(storage.get(p.partition_id, p.storage) != p.storage for p in self.before.partitions)

    def find_before(self, column: Column) -> Column | None:
        """The registered column with the attnum of `column`; None: it was added since."""
        return self.columns_before.get(column.attnum)


TableRule: TypeAlias = Callable[[TableChange], str | None]
ColumnRule: TypeAlias = Callable[[TableChange, Column], str | None]


def resnapshot_reason(before: SourceTable, now: CatalogState) -> str | None:
    """The reason why the table needs a new snapshot; None: the lake's rows are still right."""
    change = TableChange(before, now)
    return (
        _first_reason(rule(change) for rule in _TABLE_RULES)
        or column_change_reason(before, now)
        or _first_reason(rule(change) for rule in _PARTITION_RULES)
    )


def column_change_reason(before: SourceTable, now: CatalogState) -> str | None:
    """As `resnapshot_reason`, by the rules about columns alone."""
    change = TableChange(before, now)
    return _columns_changed_without_key(change) or _first_reason(
        rule(change, column) for column in now.row.columns for rule in _COLUMN_RULES
    )


def column_names(table: SourceTable) -> set[str]:
    """The names of a table's columns."""
    return {column.name for column in table.columns}


def _first_reason(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason), None)


def _publication_changed(change: TableChange) -> str | None:
    """ALTER PUBLICATION ... DROP TABLE, then ADD TABLE; RENAME, SET or OWNER, also if undone; another row filter.
    `tidemark set-writers` stores the new published_id before it moves a table.
    """
    if change.before.published_id is None:
        return None
    if change.before.published_id != change.now.row.published_id:
        return "it had been taken out of its publication, or that was altered"
    return None


def _was_unlogged(change: TableChange) -> str | None:
    """ALTER TABLE ... SET UNLOGGED, then SET LOGGED, of the table or a partition."""
    return UNLOGGED_REASON if change.before.unlogged else None


def _primary_key_recreated(change: TableChange) -> str | None:
    """ALTER TABLE ... DROP CONSTRAINT and ADD PRIMARY KEY under REPLICA IDENTITY FULL.

    Under FULL an event has the whole row with or without a key, so events of the time without a key look like those
    with it.
    """
    if change.before.replica_identity == "f" and change.before.key_id not in (None, change.now.row.key_id):
        return "its primary key was dropped and created again"
    return None


def _column_renamed(change: TableChange, column: Column) -> str | None:
    """ALTER TABLE ... RENAME COLUMN."""
    before = change.find_before(column)
    if before is not None and before.name != column.name:
        return f"column {before.name} was renamed"
    return None


def _column_readded(change: TableChange, column: Column) -> str | None:
    """ALTER TABLE ... DROP COLUMN and ADD COLUMN of the same name, at once or later."""
    if change.find_before(column) is None and column.name in change.names_before:
        return f"column {column.name} was dropped and added again"
    return None


def _column_added_with_values(change: TableChange, column: Column) -> str | None:
    """ADD COLUMN ... DEFAULT, constant or volatile, or GENERATED AS IDENTITY; a column that was not published before.

    The log does not contain the values of existing rows.
    """
    if change.find_before(column) is not None:
        return None
    is_older = column.attnum <= (change.before.attributes or 0)
    if is_older or column.attnum in change.now.columns_with_default or change.is_rewritten:
        return f"column {column.name} was added with values"
    return None


def _column_added_after_dropped(change: TableChange, column: Column) -> str | None:
    """ADD COLUMN, DROP COLUMN, ADD COLUMN between two polls: the dropped column may have had the same name."""
    highest = change.before.attributes or 0
    if change.find_before(column) is None and any(highest < gap < column.attnum for gap in change.now.dropped_attnums):
        return f"column {column.name} was added after one that was dropped again, which may have had its name"
    return None


def _columns_changed_without_key(change: TableChange) -> str | None:
    """ADD, DROP or RENAME COLUMN in a table without a key, where the row key is made of all values."""
    if change.before.key_columns is None and column_names(change.before) != column_names(change.now.row):
        return "its columns have changed, and its rows have no key but their values"
    return None


def _column_type_changed(change: TableChange, column: Column) -> str | None:
    """ALTER COLUMN ... TYPE, unless old values print alike and the table was not rewritten."""
    before = change.find_before(column)
    if before is None or before.type == column.type:
        return None
    if change.is_rewritten or _type_family(before.type) != _type_family(column.type):
        return f"column {column.name} was of type {before.type}"
    return None


def _column_values_rewritten(change: TableChange, column: Column) -> str | None:
    """ALTER COLUMN ... TYPE to the same type with USING.

    VACUUM FULL and CLUSTER rewrite the table but do not alter columns, except that the first of them writes out
    constant defaults, which looks the same as USING.
    """
    before = change.find_before(column)
    if before is not None and change.is_rewritten and before.altered not in (None, column.altered):
        return f"column {column.name} was altered, and the table rewritten"
    return None


def _partition_removed(change: TableChange) -> str | None:
    """ALTER TABLE ... DETACH PARTITION; DROP TABLE of a partition."""
    present = {partition.partition_id for partition in change.now.row.partitions}
    for partition in change.before.partitions:
        if partition.partition_id not in present:
            return f"partition {partition.name} was detached or dropped"
    return None


def _partition_attached(change: TableChange) -> str | None:
    """ALTER TABLE ... ATTACH PARTITION of a table with rows."""
    registered = {partition.partition_id for partition in change.before.partitions}
    for partition in change.now.row.partitions:
        if partition.partition_id not in registered | change.now.empty_partitions:
            return f"partition {partition.name} was attached"
    return None


def _partition_reattached(change: TableChange) -> str | None:
    """ALTER TABLE ... DETACH PARTITION, then ATTACH PARTITION of the same table."""
    attached = {partition.partition_id: partition.attached for partition in change.before.partitions}
    for partition in change.now.row.partitions:
        # An older version of Tidemark did not store the attaching transactions.
        if attached.get(partition.partition_id) not in (None, partition.attached):
            return f"partition {partition.name} was detached and attached again"
    return None


def _type_family(name: str) -> str:
    """Types of one family print a value alike, provided that the table was not rewritten."""
    bare = re.sub(r"\(.*?\)", "", name)
    return "text" if bare == "character varying" else bare


_TABLE_RULES: tuple[TableRule, ...] = (_publication_changed, _was_unlogged, _primary_key_recreated)
_COLUMN_RULES: tuple[ColumnRule, ...] = (
    _column_renamed,
    _column_readded,
    _column_added_with_values,
    _column_added_after_dropped,
    _column_type_changed,
    _column_values_rewritten,
)
_PARTITION_RULES: tuple[TableRule, ...] = (_partition_removed, _partition_attached, _partition_reattached)
