"""Catalog sync: compares the source's catalog with raw.source_tables; registers new tables, queues altered ones, ends
dropped ones.

Every job polls the catalog, and the stream syncs a table before it commits the first event of a new relation shape, so
that a snapshot is queued before the rows can be read as complete. A table that can't be replicated is logged once.
"""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

from ingest.config.sources_file import PostgresSource, matching_pattern
from ingest.lake import Lake, SourceTable
from ingest.lake.source_tables import ENDED, QUEUED
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.catalog.publications import Published
from ingest.sources.postgres.postgres_connection import Connection, LazyConnection
from ingest.sources.postgres.postgres_types import cast
from ingest.sources.postgres.schema_tracking.resnapshot_rules import CatalogState
from ingest.sources.postgres.schema_tracking.table_generations import (
    find_ended_tables,
    find_reshaped_tables,
    mark_unlogged,
    reconcile,
)
from ingest.sources.postgres.slots.replication_slots import Cancelled
from ingest.sources.postgres.writers import table_assignment

_log = logging.getLogger(__name__)

# The note of an ended generation whose table was renamed after a person had removed it from the publication. Tidemark
# does not publish it under its new name.
_REMOVED = "it was removed from the publication, and renamed"


class CatalogSync:
    """The catalog sync of one source, for all its writers. Not thread-safe: one instance per thread.

    Set by `sync_all`: tables, states: the eligible tables and their states, by table_id. ineligible: why the other
    tables are not replicated, by oid. registered: the rows of raw.source_tables, by table_id. published: what the
    publications publish, by oid of table or partition. Reading it is slow with many tables, so `sync_table` does it
    only if `is_stale`.
    wait: see `table_assignment.locked`.
    """

    def __init__(
        self,
        lake: Lake,
        source: PostgresSource,
        connection: LazyConnection,
        wait: Callable[[float], bool] = table_assignment.sleep,
    ) -> None:
        self.published: Mapping[int, Published] = {}
        self.is_stale = True
        self.tables: dict[str, CatalogTable] = {}
        self.states: dict[str, CatalogState] = {}
        self.registered: dict[str, SourceTable] = {}
        self._lake = lake
        self._source = source
        self._connection = connection
        self._wait = wait
        self.ineligible: dict[int, str] = {}
        self._reported: set[str] = set()

    def sync_all(self) -> None:
        """Sync all selected tables."""
        connection = self._connection.get()
        # Before the catalog: reading that may wait for a lock, and a table registered meanwhile would look dropped.
        self.reload()
        selected = catalog_tables.read_tables(connection, self._source.selects)
        usable = [table for table in selected if not table.problem]
        names = self._publication_names()
        with suppress(Cancelled):  # the job is stopping; the tables are synced nevertheless
            self._publish_new(connection, usable, names)
        self.published = publications.read(connection, names)
        self.tables = {table.table_id(self._source.name): table for table in usable}
        self.states = {table_id: self._catalog_state(table) for table_id, table in self.tables.items()}
        self._report_ineligible(selected)
        self._record_unreadable(selected)
        self.put(reconcile(self.states.values(), self.registered))
        self._end_missing(connection, selected)

    def _publish_new(self, connection: Connection, usable: Sequence[CatalogTable], names: Mapping[int, str]) -> None:
        """Publish new tables, and unpublish partitions that were attached to a table of another writer."""
        if publications.select_attached(publications.read_members(connection, names)):
            # Before a snapshot is queued: it must be later than the events that two publications sent.
            table_assignment.unpublish_attached(connection, self._lake, self._source, self._wait)
        published = publications.read(connection, names)
        # A registered table that is not published was removed from its publication by a person. A table whose
        # generation has ended and that exists again, such as a detached partition, is new, except with this note.
        registered_oids = {
            row.relation_id for row in self.registered.values() if row.state != ENDED or row.note == _REMOVED
        }
        new = [t for t in usable if not publications.contains(published, t) and t.oid not in registered_oids]
        if new:
            table_assignment.publish_new_tables(connection, self._lake, self._source, new, self._wait)

    def sync_table(self, table: CatalogTable) -> bool:
        """Sync one table, of which the stream has received a Relation message. True: a snapshot was queued."""
        if not self._source.selects(table.table_name):
            return False
        if self.is_stale:
            self._read_published()
        if table.problem:
            return any(row.state == QUEUED for row in self._record_unreadable([table]))
        is_queued = False
        while reconcile([self._catalog_state(table)], self.registered):
            # `registered` may be outdated by other processes. Publications are read after it: a process that moves a
            # table writes to the lake first.
            self.reload()
            self._read_published()
            stored = self.put(reconcile([self._catalog_state(table)], self.registered))
            is_queued = is_queued or any(row.state == QUEUED for row in stored)
        return is_queued

    def _read_published(self) -> None:
        """Read `published` again; keep the last state if a table is locked.

        From 18 on the server opens all published tables for this query. A table that is locked for long, for example by
        VACUUM FULL, must not block the others.
        """
        try:
            self.published = publications.read(self._connection.get(), self._publication_names())
        except psycopg.errors.LockNotAvailable:
            if not self.published:
                raise
        self.is_stale = False

    def _record_unreadable(self, selected: Sequence[CatalogTable]) -> list[SourceTable]:
        """Write to the lake which tables that can't be read at present need a new snapshot later."""
        unreadable = [table for table in selected if table.problem]
        rows = self.put(find_reshaped_tables(map(self._catalog_state, unreadable), self.registered))
        unlogged_ids = (table.table_id(self._source.name) for table in unreadable if table.unlogged)
        return rows + self.put(mark_unlogged(unlogged_ids, self.registered))

    def reload(self) -> dict[str, SourceTable]:
        """Read `registered` from the lake again."""
        self.registered = self._lake.tables.read(self._source.name)
        return self.registered

    def _publication_names(self) -> dict[int, str]:
        """The publications of all configured and all active writers, by writer."""
        writers = {*range(1, self._source.writers + 1), *self._lake.sources.read_active_writers(self._source.name)}
        return {writer: self._source.publication_of(writer) for writer in writers}

    def put(self, rows: list[SourceTable]) -> list[SourceTable]:
        """Write rows to raw.source_tables; the rows that are there afterwards (see `SourceTables.put`)."""
        stored = self._lake.tables.upsert(self._source.name, rows)
        for row in stored:
            self._warn_about_columns(row)
        self.registered |= {row.table_id: row for row in stored}
        return stored

    def _warn_about_columns(self, row: SourceTable) -> None:
        """Log which columns of the table's staging view, which users may edit, no longer fit."""
        before = self.registered.get(row.table_id) or self._find_latest(row.table_name)
        types = {column.name: column.type for column in row.columns}
        for column in before.columns if before else ():
            new_type = types.get(column.name)
            if new_type is None:
                problem = "is no longer published under this name; its staging view shows NULL in rows without it"
            elif cast(column.name, new_type, {}) != cast(column.name, column.type, {}):
                problem = f"is now of type {new_type}, before of {column.type}; its staging view may fail to read it"
            else:
                continue
            pattern = shlex.quote(matching_pattern(row.table_name))
            hint = f"`tidemark codegen --source {row.source} --force {pattern}` writes the view again"
            _log.warning("%s: column %s %s (%s)", row.table_name, column.name, problem, hint)

    def _find_latest(self, table_name: str) -> SourceTable | None:
        """The active generation with this name, or the one that ended last."""
        generations = [row for row in self.registered.values() if row.table_name == table_name]
        return max(generations, key=lambda row: (row.ended_lsn is None, row.ended_lsn), default=None)

    def _catalog_state(self, table: CatalogTable) -> CatalogState:
        row = table.to_source_table(self._source.name)
        if not publications.covers(self.published, table):
            is_twice = bool(publications.duplicate_writers(self.published, table))
            return CatalogState(row, published=False, published_twice=is_twice)
        if not table.partitions:  # a partitioned table without partitions: it has no rows
            root = self.published.get(table.oid)
            return CatalogState(replace(row, writer=root.writers[0]) if root else row)
        published = [self.published[partition.partition_id] for partition in table.partitions]
        names = set.intersection(*(set(partition.columns) for partition in published))
        columns = tuple(column for column in row.columns if column.name in names)
        published_id = publications.combined_id({partition.published_id for partition in published})
        empty = (partition.partition_id for partition, blocks, _ in table.partition_sizes if not blocks)
        return CatalogState(
            replace(row, writer=published[0].writers[0], columns=columns, published_id=published_id),
            columns_with_default=table.columns_with_default,
            dropped_attnums=table.dropped_attnums,
            empty_partitions=frozenset(empty),
        )

    def _end_missing(self, connection: Connection, selected: list[CatalogTable]) -> None:
        present = [(table.table_id(self._source.name), table.oid, table.table_name) for table in selected]
        ended = find_ended_tables(present, self.registered)
        if not ended:
            return
        lsn = catalog_tables.emit_marker(connection)
        for row in ended:
            _log.warning("%s (%s) no longer exists; its rows will be deleted", row.table_name, row.table_id)
        # Renamed, and still unpublished.
        removed_oids = {table.oid for table in selected if not publications.contains(self.published, table)}
        rows = [row.with_changes(state=ENDED, ended_lsn=lsn) for row in ended]
        self.put([replace(row, note=_REMOVED) if row.relation_id in removed_oids else row for row in rows])

    def _report_ineligible(self, selected: Sequence[CatalogTable]) -> None:
        """Log which tables are not replicated and why, each once."""
        self.ineligible = {}
        for table in selected:
            reason = table.problem or self._publication_problem(table)
            if not reason:
                continue
            self.ineligible[table.oid] = reason
            if f"{table.oid} {reason}" not in self._reported:
                self._reported.add(f"{table.oid} {reason}")
                _log.error("%s is left out: %s", table.table_name, reason)

    def _publication_problem(self, table: CatalogTable) -> str:
        if publications.covers(self.published, table):
            return ""
        if writers := publications.duplicate_writers(self.published, table):
            names = ", ".join(self._source.publication_of(writer) for writer in writers)
            return f"it is in several publications, {names}, and would be streamed by each; leave it in one of them"
        if problem := publications.column_problem(self.published, table):
            return problem
        publication = self._source.publication
        return (
            f"it is not in publication {publication}, so the lake keeps its last state; "
            f'ALTER PUBLICATION "{publication}" ADD TABLE ONLY "{table.schema}"."{table.name}"'
        )
