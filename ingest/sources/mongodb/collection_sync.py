"""Catalog sync: compares the deployment's collections with raw.source_tables; registers new ones, ends dropped ones.

A collection that can't be replicated or read is logged once, and not registered.
"""

import logging
from collections.abc import Collection

from ingest.config.sources_file import MongoSource
from ingest.lake import Lake, SourceTable
from ingest.lake.source_tables import ENDED
from ingest.sources.mongodb import collection_catalog, mongodb_server
from ingest.sources.mongodb import stream_scope as scopes
from ingest.sources.mongodb.mongodb_connection import Client
from ingest.sources.mongodb.stream_scope import StreamScope

_log = logging.getLogger(__name__)


class CatalogSync:
    """The catalog sync of one source. scope: of its stream.

    Set by `sync_all`: seen: the collections that can be replicated, by table_id. ineligible: why the others can't be,
    by table_id if they have one.
    """

    def __init__(self, lake: Lake, source: MongoSource, scope: StreamScope) -> None:
        self.seen: dict[str, collection_catalog.Collection] = {}
        self.ineligible: dict[str, str] = {}
        self._lake = lake
        self._source = source
        self._scope = scope
        self._reported: set[str] = set()

    def sync_all(self, client: Client) -> None:
        """Sync all selected collections. Raises Failure if the stream has another scope by now."""
        name = self._source.name
        collections = collection_catalog.list_collections(client, self._source)
        registered = self._lake.tables.read(name)
        self.seen, self.ineligible = {}, {}
        present: set[str] = set()
        for collection in collections:
            row = None if collection.uuid is None else collection.to_source_table(name)
            if row is not None:
                present.add(row.table_id)
            problem = collection.problem
            if row is not None and not problem and _is_to_be_read(registered.get(row.table_id)):
                problem = collection_catalog.read_problem(client, collection)
            if problem:
                self._report(collection, problem, row)
            elif row is not None:
                self.seen[row.table_id] = collection
        unlisted = {
            collection.database: collection.problem
            for collection in collections
            if collection.name == collection_catalog.ANY
        }
        self.ineligible |= {
            row.table_id: unlisted[database]
            for row in registered.values()
            if (database := row.table_name.partition(".")[0]) in unlisted
        }
        if rows := [*self._new(registered), *self._find_ended(client, registered, present, unlisted)]:
            scopes.check_scope(self._lake, self._source, self._scope)
            self._lake.tables.upsert(name, rows)

    def _new(self, registered: dict[str, SourceTable]) -> list[SourceTable]:
        rows = []
        for table_id, collection in self.seen.items():
            before = registered.get(table_id)
            if before is None:
                rows.append(collection.to_source_table(self._source.name))
            elif before.state == ENDED:
                rows.append(before.with_snapshot_queued("it exists again"))
        return rows

    def _find_ended(
        self, client: Client, registered: dict[str, SourceTable], present: set[str], unlisted: Collection[str]
    ) -> list[SourceTable]:
        """The generations that were dropped or renamed, or are no longer selected: their events are not committed.

        Not those of a database whose collections can't be listed.
        """
        ended = [
            row
            for row in registered.values()
            if row.state != ENDED and row.table_id not in present and row.table_name.partition(".")[0] not in unlisted
        ]
        if not ended:
            return []
        position = mongodb_server.emit_marker(client, self._scope.level)
        for row in ended:
            _log.warning(
                "%s (%s) no longer exists or is no longer selected; its rows will be deleted",
                row.table_name,
                row.table_id,
            )
        return [row.with_changes(state=ENDED, ended_lsn=position) for row in ended]

    def _report(self, collection: collection_catalog.Collection, why: str, row: SourceTable | None) -> None:
        if row is not None:
            self.ineligible[row.table_id] = why
        if f"{collection.full_name} {why}" not in self._reported:
            self._reported.add(f"{collection.full_name} {why}")
            _log.error("%s is left out: %s", collection.full_name, why)


def _is_to_be_read(row: SourceTable | None) -> bool:
    return row is None or row.is_pending
