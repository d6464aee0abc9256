"""The catalogue against the lake: registers what is new, queues what was altered, ends what has
gone.

Done by every job now and then, and by the stream before it lands the first change of a relation's
new shape, so that nobody takes the rows for complete. What can't be replicated is reported by name,
once.
"""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

from ingest.config.sources_file import PostgresSource, matching
from ingest.lake import Lake, SourceTable
from ingest.lake.source_tables import ENDED, QUEUED
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.catalog.publications import Published
from ingest.sources.postgres.postgres_connection import Connection, LazyConnection
from ingest.sources.postgres.postgres_types import cast
from ingest.sources.postgres.schema_tracking.table_generations import Seen, gone, reconcile, reshaped, unlogged
from ingest.sources.postgres.slots.replication_slots import Cancelled
from ingest.sources.postgres.writers import table_assignment

_log = logging.getLogger(__name__)


class Survey:
    """The tables of one source, of all its writers; each thread needs one of its own.

    After `all`: tables, seen: the usable ones by table_id. obstacles: why others are left out, by oid. known: what the
    lake says of all. published: what the publications send, by oid of table or leaf; `one` reads it, much where
    tables are many, if it `is_stale`. wait: see `sharing.locked`.
    """

    def __init__(
        self,
        lake: Lake,
        source: PostgresSource,
        link: LazyConnection,
        wait: Callable[[float], bool] = table_assignment.sleep,
    ) -> None:
        self.published: Mapping[int, Published] = {}
        self.is_stale = True
        self.tables: dict[str, CatalogTable] = {}
        self.seen: dict[str, Seen] = {}
        self.known: dict[str, SourceTable] = {}
        self._lake = lake
        self._source = source
        self._link = link
        self._wait = wait
        self.obstacles: dict[int, str] = {}
        self._reported: set[str] = set()

    def all(self) -> None:
        """Look at all tables that are selected."""
        connection = self._link.get()
        # First: a look may wait for a lock, and what was registered meanwhile has not gone.
        self.refreshed()
        found = catalog_tables.tables(connection, self._source.selects)
        usable = [table for table in found if not table.problem]
        names = self._publications()
        with suppress(Cancelled):  # the job ends; what there is has to be looked at all the same
            self._publish(connection, usable, names)
        self.published = publications.read(connection, names)
        self.tables = {table.table_id(self._source.name): table for table in usable}
        self.seen = {table_id: self._seen(table) for table_id, table in self.tables.items()}
        self._report(found)
        self._keep(found)
        self.put(reconcile(self.seen.values(), self.known))
        self._end(connection, found)

    def _publish(self, connection: Connection, usable: Sequence[CatalogTable], names: Mapping[int, str]) -> None:
        """See to what is published, and by whom."""
        if publications.attached(publications.members(connection, names)):
            # Before anything is queued for it: a snapshot is to be later than what came twice.
            table_assignment.release(connection, self._lake, self._source, self._wait)
        published = publications.read(connection, names)
        # One that is known may have been taken out by a person; one that is back, such as a detached partition, is new.
        seen = {row.relation_id for row in self.known.values() if row.state != ENDED}
        new = [t for t in usable if not publications.holds(published, t) and t.oid not in seen]
        if new:
            table_assignment.add(connection, self._lake, self._source, new, self._wait)

    def one(self, table: CatalogTable) -> bool:
        """Look at one table, as the stream has just shown a change of it.

        Whether a snapshot was queued.
        """
        if not self._source.selects(table.table_name):
            return False
        if self.is_stale:
            self._read_published()
        if table.problem:
            return any(row.state == QUEUED for row in self._keep([table]))
        is_queued = False
        while reconcile([self._seen(table)], self.known):
            # By what was known; others may have been at it, also between this look and the change. Publications last:
            # who moves a table tells the lake first.
            self.refreshed()
            self.published = publications.read(self._link.get(), self._publications())
            put = self.put(reconcile([self._seen(table)], self.known))
            is_queued = is_queued or any(row.state == QUEUED for row in put)
        return is_queued

    def _read_published(self) -> None:
        """What is published by now; as it was, if that can't be known at the moment: from 18 on the server opens all
        tables for it, and one that is locked for long, by VACUUM FULL say, is not to hold up the others.
        """
        try:
            self.published = publications.read(self._link.get(), self._publications())
        except psycopg.errors.LockNotAvailable:
            if not self.published:
                raise
        self.is_stale = False

    def _keep(self, found: Sequence[CatalogTable]) -> list[SourceTable]:
        """What is to be remembered of tables that can't be read at present."""
        left_out = [table for table in found if table.problem]
        put = self.put(reshaped(map(self._seen, left_out), self.known))
        return put + self.put(unlogged((t.table_id(self._source.name) for t in left_out if t.unlogged), self.known))

    def refreshed(self) -> dict[str, SourceTable]:
        """What the lake says of all tables now."""
        self.known = self._lake.tables.read(self._source.name)
        return self.known

    def _publications(self) -> dict[int, str]:
        """Those of all writers that there are, and are to be."""
        writers = {*range(1, self._source.writers + 1), *self._lake.writers(self._source.name)}
        return {writer: self._source.publication_of(writer) for writer in writers}

    def put(self, rows: list[SourceTable]) -> list[SourceTable]:
        """Puts rows in raw.source_tables; gives those that are there after it."""
        put = self._lake.tables.put(self._source.name, rows)
        for row in put:
            self._tell_columns(row)
        self.known |= {row.table_id: row for row in put}
        return put

    def _tell_columns(self, row: SourceTable) -> None:
        """What staging views, which are a person's to edit and go by names, may not fit any more."""
        before = self.known.get(row.table_id) or self._last_of(row.table_name)
        kinds = {column.name: column.type for column in row.columns}
        for column in before.columns if before else ():
            now = kinds.get(column.name)
            if now is None:
                told = "not published under this name any more; its staging view shows NULL in rows without it"
            elif cast(column.name, now, {}) != cast(column.name, column.type, {}):
                told = f"of type {now} now, before of {column.type}; its staging view may not read that"
            else:
                continue
            pattern = shlex.quote(matching(row.table_name))
            hint = f"`tidemark codegen --source {row.source} --force {pattern}` writes the view again"
            _log.warning("%s: column %s is %s (%s)", row.table_name, column.name, told, hint)

    def _last_of(self, table_name: str) -> SourceTable | None:
        """The generation of that name which is there, or was until others came."""
        named = [row for row in self.known.values() if row.table_name == table_name]
        return max(named, key=lambda row: (row.ended_lsn is None, row.ended_lsn), default=None)

    def _seen(self, table: CatalogTable) -> Seen:
        row = table.row(self._source.name)
        if not publications.sends(self.published, table):
            return Seen(row, published=False, doubled=bool(publications.several(self.published, table)))
        if not table.leaves:  # a partitioned table without partitions: nothing to send, nothing to read
            root = self.published.get(table.oid)
            return Seen(replace(row, writer=root.writers[0]) if root else row)
        sent = [self.published[leaf.partition_id] for leaf in table.leaves]
        names = set.intersection(*(set(leaf.columns) for leaf in sent))
        columns = tuple(column for column in row.columns if column.name in names)
        published_id = max(leaf.published_id for leaf in sent)
        empty = (leaf.partition_id for leaf, pages, _ in table.sizes if not pages)
        return Seen(
            replace(row, writer=sent[0].writers[0], columns=columns, published_id=published_id),
            filled=table.filled,
            gaps=table.gaps,
            empty=frozenset(empty),
        )

    def _end(self, connection: Connection, found: list[CatalogTable]) -> None:
        present = [(table.table_id(self._source.name), table.oid, table.table_name) for table in found]
        ended = gone(present, self.known)
        if not ended:
            return
        lsn = catalog_tables.watermark(connection)
        for row in ended:
            _log.warning("%s (%s) is no longer there; its rows leave", row.table_name, row.table_id)
        rows = [row.after(state=ENDED, ended_lsn=lsn) for row in ended]
        self.put(rows)

    def _report(self, found: Sequence[CatalogTable]) -> None:
        """Say what is left out and why, each once."""
        self.obstacles = {}
        for table in found:
            why = table.problem or self._unpublished(table)
            if not why:
                continue
            self.obstacles[table.oid] = why
            if f"{table.oid} {why}" not in self._reported:
                self._reported.add(f"{table.oid} {why}")
                _log.error("%s is left out: %s", table.table_name, why)

    def _unpublished(self, table: CatalogTable) -> str:
        if publications.sends(self.published, table):
            return ""
        if twice := publications.several(self.published, table):
            names = ", ".join(self._source.publication_of(writer) for writer in twice)
            return f"it is in several publications, {names}, and would be streamed by each; leave it in one of them"
        if misfit := publications.misfit(self.published, table):
            return misfit
        publication = self._source.publication
        return (
            f"it is not in publication {publication}, so the lake keeps it as it was; "
            f'ALTER PUBLICATION "{publication}" ADD TABLE ONLY "{table.schema}"."{table.name}"'
        )
