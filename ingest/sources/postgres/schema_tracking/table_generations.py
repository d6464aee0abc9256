"""What a look at the catalogue means for the generations registered in the lake. Pure.

Names what is new, what has gone, and which alterations make the lake's rows differ from the
source's, so that a new snapshot has to replace them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ingest.lake.source_tables import DONE, ENDED, RUNNING, Column, Partition, SourceTable

_UNLOGGED = "it was unlogged for a while, and its changes are in no log"
_SHAPE = ("writer", "columns", "leaves", "attributes", "key_id", "published_id")


@dataclass(frozen=True)
class Seen:
    """A usable table as the catalogue has it now. row: what raw.source_tables says of it when it is
    new.

    published: whether one writer's publication sends all of it; doubled: several send some of it.
    filled: attnums of columns that were added with a default, whose values no record tells. gaps:
    attnums of columns that have gone. empty: oids of leaves that hold nothing.
    """

    row: SourceTable
    published: bool = True
    doubled: bool = False
    filled: frozenset[int] = frozenset()
    gaps: frozenset[int] = frozenset()
    empty: frozenset[int] = frozenset()


def reconcile(seen: Iterable[Seen], known: Mapping[str, SourceTable]) -> list[SourceTable]:
    """The rows to be put into raw.source_tables so that they say what was seen; in the order of
    `seen`.

    known: all of a source's generations, by table_id. Those that have gone are not among the
    result.
    """
    changes = []
    for table in seen:
        before = known.get(table.row.table_id)
        if not table.published:
            # What comes twice is counted twice where rows have no key, until a snapshot replaces it.
            if table.doubled and before is not None and before.state in (RUNNING, DONE):
                changes.append(before.with_snapshot_queued("several publications send some of it"))
            continue
        if before is None:
            changes.append(table.row)
        elif after := _altered(table, before):
            changes.append(after)
    return changes


def gone(present: Iterable[tuple[str, int, str]], known: Mapping[str, SourceTable]) -> list[SourceTable]:
    """The generations that are no longer there: their table was dropped, renamed, or has another
    key now.

    present: (table_id, oid, name) of all selected tables, usable or not. A generation is there as long as
    its table is, under its name, and has none that is registered in its place.
    """
    ids, names = set(), {}
    for table_id, oid, name in present:
        ids.add(table_id)
        names[oid] = name
    replaced = {row.relation_id for row in known.values() if row.table_id in ids and row.state != ENDED}
    return [
        row
        for row in known.values()
        if row.state != ENDED
        and row.table_id not in ids
        and (names.get(row.relation_id) != row.table_name or row.relation_id in replaced)
    ]


def reshaped(seen: Iterable[Seen], known: Mapping[str, SourceTable]) -> list[SourceTable]:
    """The generations of tables that can't be read at present whose columns are others now: changes of them go on
    landing, so their rows are not what they were taken for until they can be read anew.
    """
    found = ((table, row) for table in seen if table.published for row in known.values())
    return [
        row.with_snapshot_queued(why)
        for table, row in found
        if row.relation_id == table.row.relation_id and row.state in (RUNNING, DONE)
        if (why := _why_columns(table, row))
    ]


def unlogged(table_ids: Iterable[str], known: Mapping[str, SourceTable]) -> list[SourceTable]:
    """What is to be remembered of generations that are now, in part or whole, in no log.

    Their rows stay as they are until they are in the log again, and are read anew then.
    """
    rows = [known[table_id] for table_id in table_ids if table_id in known]
    begun = [row.with_snapshot_queued(_UNLOGGED) for row in rows if row.state == RUNNING]
    return begun + [row.with_changes(unlogged=True) for row in rows if row.state == DONE and not row.unlogged]


def _altered(table: Seen, before: SourceTable) -> SourceTable | None:
    """What has become of a registered generation; None: nothing that matters."""
    now = table.row
    why = "it is back" if before.state == ENDED else _why(table, before)
    if why:
        return replace(before.with_snapshot_queued(why), **{name: getattr(now, name) for name in _SHAPE})
    # A snapshot that is being read compares with what it began with, so nothing is put in its
    # place.
    harmless = {name: getattr(now, name) for name in _SHAPE}
    if before.moving_id == now.published_id:
        harmless["moving_id"] = None
    if gone_columns := _names(before) - _names(now):
        harmless["dropped"] = (*(before.dropped or ()), *sorted(gone_columns))
    if before.complete_lsn is None or all(getattr(before, name) == value for name, value in harmless.items()):
        return None
    return before.with_changes(**harmless)


def _why(table: Seen, before: SourceTable) -> str:
    """Why the table's rows have to be read anew; empty if they need not be."""
    if before.published_id is not None and not _is_published_as(before, table.row.published_id or 0):
        return "it had been taken out of its publication, or that was altered"
    if before.unlogged:
        return _UNLOGGED
    if before.replica_identity == "f" and before.key_id not in (None, table.row.key_id):
        # Its records have whole rows, whatever the key: those of meanwhile were taken for rows of this one.
        return "its primary key was dropped and made again"
    return _why_columns(table, before) or _why_leaves(table, before.leaves)


def _is_published_as(before: SourceTable, published_id: int) -> bool:
    """A lake of an older version has the lower half of the number alone."""
    return not {published_id, published_id & 0xFFFFFFFF}.isdisjoint({before.published_id, before.moving_id})


def _why_columns(table: Seen, before: SourceTable) -> str:
    earlier: dict[int, Column] = {column.attnum: column for column in before.columns}
    names = {*_names(before), *(before.dropped or ())}
    if before.key_columns is None and _names(before) != _names(table.row):
        return "its columns are others, and its rows have no key but their values"
    rewritten = _rewritten(table, before.leaves)
    for column in table.row.columns:
        was = earlier.get(column.attnum)
        if was is None:
            if column.name in names:
                return f"column {column.name} was dropped and added again"
            older = column.attnum <= (before.attributes or 0)
            if older or column.attnum in table.filled or rewritten:
                return f"column {column.name} came with values"
            if any((before.attributes or 0) < gap < column.attnum for gap in table.gaps):
                return f"column {column.name} came after one that had gone again, which may have had its name"
        elif was.name != column.name:
            return f"column {was.name} was renamed"
        elif was.type != column.type and (rewritten or _family(was.type) != _family(column.type)):
            return f"column {column.name} was of type {was.type}"
        elif rewritten and was.altered not in (None, column.altered):
            # ALTER ... TYPE to the same type USING something. VACUUM FULL and the like leave columns alone, but for
            # constant defaults that are written out by the first of them.
            return f"column {column.name} was altered, and the table rewritten"
    return ""


def _names(table: SourceTable) -> set[str]:
    return {column.name for column in table.columns}


def _family(kind: str) -> str:
    """Types of one family print a value alike if the table was not rewritten on the way between
    them.
    """
    bare = re.sub(r"\(.*?\)", "", kind)
    return "text" if bare == "character varying" else bare


def _rewritten(table: Seen, before: Iterable[Partition]) -> bool:
    storage = {leaf.partition_id: leaf.storage for leaf in table.row.leaves}
    return any(storage.get(leaf.partition_id, leaf.storage) != leaf.storage for leaf in before)


def _why_leaves(table: Seen, before: Iterable[Partition]) -> str:
    now = {leaf.partition_id: leaf for leaf in table.row.leaves}
    earlier = {leaf.partition_id: leaf for leaf in before}
    for oid in earlier.keys() - now.keys():
        return f"partition {earlier[oid].name} was detached or dropped"
    for oid in now.keys() - earlier.keys() - table.empty:
        return f"partition {now[oid].name} was attached"
    for oid in earlier.keys() & now.keys():
        if earlier[oid].attached not in (None, now[oid].attached):
            return f"partition {now[oid].name} was detached, and attached again"
    return ""
