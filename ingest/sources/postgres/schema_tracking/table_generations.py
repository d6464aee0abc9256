"""What the state of the catalog means for the generations registered in the lake. Pure.

Finds new tables, ended generations, and the DDL that made the lake's rows differ from the source's, so that a new
snapshot must replace them (`resnapshot_rules`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ingest.lake.source_tables import DONE, ENDED, RUNNING, SourceTable
from ingest.sources.postgres.schema_tracking.resnapshot_rules import (
    UNLOGGED_REASON,
    CatalogState,
    column_change_reason,
    column_names,
    resnapshot_reason,
)

# The fields of raw.source_tables that follow the catalog.
_CATALOG_FIELDS = ("writer", "columns", "partitions", "attributes", "key_id", "published_id")


def reconcile(states: Iterable[CatalogState], registered: Mapping[str, SourceTable]) -> list[SourceTable]:
    """The rows to write to raw.source_tables so that it agrees with `states`, in their order.

    registered: all generations of the source, by table_id. Ended ones are not in the result: see `find_ended_tables`.
    """
    changes = []
    for state in states:
        before = registered.get(state.row.table_id)
        if not state.published:
            # An event that two publications send is counted twice in a table without a key, until a new snapshot.
            if state.published_twice and before is not None and before.state in (RUNNING, DONE):
                changes.append(before.with_snapshot_queued("several publications publish a part of it"))
            continue
        if before is None:
            changes.append(state.row)
        elif after := _updated(state, before):
            changes.append(after)
    return changes


def find_ended_tables(
    present: Iterable[tuple[str, int, str]], registered: Mapping[str, SourceTable]
) -> list[SourceTable]:
    """The generations that have ended: their table was dropped or renamed, or has another key.

    present: (table_id, oid, name) of all selected tables, eligible or not. A generation continues as long as its table
    exists under its name, and no other generation of the table is registered.
    """
    ids, names = set(), {}
    for table_id, oid, name in present:
        ids.add(table_id)
        names[oid] = name
    replaced = {row.relation_id for row in registered.values() if row.table_id in ids and row.state != ENDED}
    return [
        row
        for row in registered.values()
        if row.state != ENDED
        and row.table_id not in ids
        and (names.get(row.relation_id) != row.table_name or row.relation_id in replaced)
    ]


def find_reshaped_tables(states: Iterable[CatalogState], registered: Mapping[str, SourceTable]) -> list[SourceTable]:
    """The generations to be queued of tables that can't be read at present and whose columns have changed.

    Their events are still committed, so their rows are not consistent until a new snapshot can be taken.
    """
    pairs = ((state, row) for state in states if state.published for row in registered.values())
    return [
        row.with_snapshot_queued(reason)
        for state, row in pairs
        if row.relation_id == state.row.relation_id and row.state in (RUNNING, DONE)
        if (reason := column_change_reason(row, state))
    ]


def mark_unlogged(table_ids: Iterable[str], registered: Mapping[str, SourceTable]) -> list[SourceTable]:
    """The rows to write for generations that are unlogged now, as a whole or in part.

    A complete one keeps its rows, and gets a new snapshot once all of it is logged; a running snapshot starts over.
    """
    rows = [registered[table_id] for table_id in table_ids if table_id in registered]
    running = [row.with_snapshot_queued(UNLOGGED_REASON) for row in rows if row.state == RUNNING]
    return running + [row.with_changes(unlogged=True) for row in rows if row.state == DONE and not row.unlogged]


def _updated(state: CatalogState, before: SourceTable) -> SourceTable | None:
    """The row that replaces `before`; None: nothing to write."""
    now = state.row
    reason = "it exists again" if before.state == ENDED else resnapshot_reason(before, state)
    if reason:
        return replace(before.with_snapshot_queued(reason), **{name: getattr(now, name) for name in _CATALOG_FIELDS})
    # A running snapshot is compared with the row that it started with, so that row is not replaced.
    changes = {name: getattr(now, name) for name in _CATALOG_FIELDS}
    if dropped := column_names(before) - column_names(now):
        changes["dropped"] = (*(before.dropped or ()), *sorted(dropped))
    if before.complete_lsn is None or all(getattr(before, name) == value for name, value in changes.items()):
        return None
    return before.with_changes(**changes)
