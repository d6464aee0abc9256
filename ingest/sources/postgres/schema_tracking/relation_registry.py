"""Tells the decoder which table a relation of the stream belongs to, and the table's key in key order.

A Relation message has the relation's shape at the time of the change; the catalog has its present shape. The message
takes precedence. The catalog adds the root of a partition and the order of the key; generations registered in the lake
replace it for dropped relations. Before each answer the table is synced with the catalog, so that a needed snapshot is
queued before the first event of the new shape can be read.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import psycopg

from ingest.common.errors import Failure
from ingest.common.log_repeats import Repeats
from ingest.common.records import table_id
from ingest.lake import SourceTable
from ingest.lake.source_tables import DONE, ENDED, QUEUED, RUNNING
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.pgoutput.messages import Relation, TableIdentity
from ingest.sources.postgres.postgres_connection import TRANSIENT_ERRORS, CannotConnect, LazyConnection
from ingest.sources.postgres.schema_tracking.table_sync import CatalogSync
from ingest.sources.postgres.slots.replication_slots import Cancelled

_log = logging.getLogger(__name__)


class LakeRelationRegistry:
    """The decoder's `RelationRegistry` of one source.

    unselected: generations that are published, but not selected in sources.yml; their events are not committed.
    queued: called when a snapshot was queued. wait: waits some seconds; true: the job is stopping.
    """

    def __init__(
        self,
        source: str,
        selects: Callable[[str], bool],
        connection: LazyConnection,
        catalog_sync: CatalogSync,
        queued: Callable[[], None],
        wait: Callable[[float], bool],
    ) -> None:
        self.unselected: set[str] = set()
        self._source = source
        self._selects = selects
        self._connection = connection
        self._catalog_sync = catalog_sync
        self._queued = queued
        self._wait = wait
        self._repeats = Repeats(_log)

    def describe(self, relation: Relation, *, again: bool = False) -> TableIdentity:
        """See `RelationRegistry`. Retries while the source can't be reached; raises Cancelled if the job is stopped."""
        now = self._read_table(relation.oid)
        registered = [t for t in self._catalog_sync.registered.values() if _contains(t, relation.oid)]
        info = describe_relation(self._source, relation, now, registered, again=again)
        if not self._selects(info.table_name):
            self.unselected.add(info.table_id)
        row = self._catalog_sync.registered.get(info.table_id)
        return replace(info, has_renamed_columns=bool(now and row and has_renamed_columns(relation, now, row)))

    def refresh(self) -> None:
        """Read raw.source_tables again."""
        self._catalog_sync.reload()

    def mark_stale(self) -> None:
        """More of the log was received, so the publications may have changed since they were read."""
        self._catalog_sync.is_stale = True

    def check_publication(self, publication: str) -> None:
        """Raises Failure if the publication was dropped: from 18 on the server then omits its changes silently."""
        try:
            exists = publications.exists(self._connection.get(), publication)
        except (CannotConnect, psycopg.OperationalError):
            return  # the thread that reads the stream handles a lost connection
        if not exists:
            raise Failure(
                "the publication was dropped; changes since then are missing from the stream",
                f"source {self._source}, publication {publication}",
                "Start the stream again: it creates the publication if the role may, and reads its tables again",
            )

    def find_replaced(self, changed: Mapping[TableIdentity, int]) -> set[TableIdentity]:
        """The changed generations that are unregistered or ended although another one of their table is active.

        changed: see `requeue_affected`.
        """
        active = self.active_table_ids()
        candidates = self._candidate_tables(changed).items()
        replaced = (info for info, rows in candidates if rows and info.table_id not in active)
        return {info for info in replaced if info.table_id not in self.unselected}

    def active_table_ids(self) -> frozenset[str]:
        """The table_ids of the active generations, as last read from the lake."""
        return frozenset(row.table_id for row in self._catalog_sync.registered.values() if row.state != ENDED)

    def requeue_affected(self, changed: Mapping[TableIdentity, int]) -> None:
        """Queue new snapshots of the tables whose rows would lack an event that is about to be committed.

        changed: the commit_lsn of the last event, by table as it was described for the event.
        An event of one generation is missing from the other generation that the table is registered as, if the table's
        identity, key or name was changed and changed back between two polls. So is a value under another name of its
        column.
        """
        while incomplete := self._find_incomplete(changed):
            reason = "its identity, key, name or a column's name had been another one for a while"
            if self._catalog_sync.put([row.with_snapshot_queued(reason) for row in incomplete.values()]):
                self._queued()
            self._catalog_sync.reload()

    def find_pending(self, changed: Mapping[TableIdentity, int]) -> dict[TableIdentity, int]:
        """The changes that a snapshot may lack whose snapshot LSN is not known yet, since it is still queued."""
        candidates = self._candidate_tables(changed)
        return {info: lsn for info, lsn in changed.items() if any(row.state == QUEUED for row in candidates[info])}

    def requeue_unstarted(self, pending: Mapping[TableIdentity, int]) -> None:
        """Queue the snapshots of `pending` again, so that none starts that was planned before these changes.

        Called when this process stops tracking the changes.
        """
        requeued: set[str] = set()
        while True:
            self._catalog_sync.reload()
            self.requeue_affected(pending)
            rows = [row for rows in self._candidate_tables(pending).values() for row in rows]
            waiting = {row.table_id: row for row in rows if row.state == QUEUED and row.table_id not in requeued}
            if not waiting:
                return
            requeued.update(
                row.table_id
                for row in self._catalog_sync.put(
                    [row.with_snapshot_queued(row.note or "") for row in waiting.values()]
                )
            )

    def _find_incomplete(self, changed: Mapping[TableIdentity, int]) -> dict[str, SourceTable]:
        """The generations, by table_id, whose snapshot lacks one of these changes."""
        return {
            row.table_id: row
            for info, rows in self._candidate_tables(changed).items()
            for row in rows
            if row.state in (RUNNING, DONE) and changed[info] >= (row.snapshot_lsn or 0)
        }

    def _candidate_tables(self, changed: Mapping[TableIdentity, int]) -> dict[TableIdentity, list[SourceTable]]:
        """The other active generations of each changed table; its own generation too if its columns were renamed."""
        by_oid: dict[int, dict[str, SourceTable]] = {}
        for row in self._catalog_sync.registered.values():
            if row.state != ENDED:
                for oid in (row.relation_id, *(partition.partition_id for partition in row.partitions)):
                    by_oid.setdefault(oid, {})[row.table_id] = row
        empty: dict[str, SourceTable] = {}
        return {
            info: [
                row
                # A partition may have been a table of its own, or a partition of another table, or become one again.
                for row in {**by_oid.get(info.root_id, empty), **by_oid.get(info.partition_id, empty)}.values()
                if row.table_id != info.table_id or info.has_renamed_columns
            ]
            for info in changed
        }

    def _read_table(self, oid: int) -> CatalogTable | None:
        """The table in the catalog, after it was synced with the lake. Raises Cancelled."""
        while True:
            try:
                now = catalog_tables.read_table(self._connection.get(), oid)
                if now is not None and self._catalog_sync.sync_table(now):
                    self._queued()
                self._repeats.over(f"source {self._source}: the catalog can be read again")
                return now
            except (CannotConnect, psycopg.OperationalError, *TRANSIENT_ERRORS) as error:
                if self._wait(1.0):
                    raise Cancelled from error
                why = self._connection.describe_error(error)
                message = f"source {self._source}: the catalog can't be read at the moment ({why})"
                self._repeats.occurred(message, key="look")


def describe_relation(
    source: str,
    relation: Relation,
    now: CatalogTable | None,
    registered: Sequence[SourceTable],
    *,
    again: bool = False,
) -> TableIdentity:
    """The table that a relation of the stream is, or is a partition of. Pure.

    now: the table in the catalog; None: it was dropped. registered: its generations in raw.source_tables.
    again: see `RelationRegistry`; not all server versions send a Relation message after a schema was renamed.
    """
    root = now.oid if now else registered[0].relation_id if registered else relation.oid
    name = f"{relation.schema}.{relation.name}"
    if now and again:
        name = now.table_name
    elif root != relation.oid:
        name = now.table_name if now else registered[0].table_name
    key = _key(relation, now, registered)
    generation = table_id(source, root, name, key, relation.identity)
    return TableIdentity(generation, name, relation.oid, root, key)


def has_renamed_columns(relation: Relation, now: CatalogTable, row: SourceTable) -> bool:
    """Whether columns of the stream's relation may have been renamed since, or renamed and renamed back. Pure.

    True if a column of the relation is neither in the catalog nor registered: it was renamed, or dropped between two
    polls. True if a column of the relation is not in the catalog while a registered column is missing from the
    relation. True if the columns are in another order than in the catalog, where columns added later come last.
    """
    in_catalog, registered = now.column_names.get(relation.oid, ()), {column.name for column in row.columns}
    if not registered.union(in_catalog, row.dropped or ()).issuperset(relation.column_names):
        return True
    expected = [name for name in in_catalog if name in registered]
    received = [name for name in relation.column_names if name in expected]
    is_replaced = len(received) < len(expected) and not set(in_catalog).issuperset(relation.column_names)
    return is_replaced or received != expected[: len(received)]


def _contains(table: SourceTable, oid: int) -> bool:
    return table.relation_id == oid or any(partition.partition_id == oid for partition in table.partitions)


def _key(relation: Relation, now: CatalogTable | None, registered: Sequence[SourceTable]) -> tuple[str, ...] | None:
    """The key in key order, from the catalog or a registered generation, if it matches the relation's key."""
    candidates = [now.key_columns] if now and now.identity == relation.identity else []
    candidates += [t.key_columns for t in registered if t.replica_identity == relation.identity]
    if relation.identity == "f":
        names = set(relation.column_names)
        return next((key for key in candidates if key is None or set(key) <= names), None)
    flagged = relation.identity_columns
    if relation.identity == "n" or not flagged:
        return None
    return next((key for key in candidates if key and set(key) == set(flagged)), flagged)
