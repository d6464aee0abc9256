"""The deployment's collections against the lake: registers what is new, ends what has gone.

What can't be replicated, or read, is reported by name, once, and registered nowhere.
"""

import logging
from collections.abc import Collection

from ingest.config.sources_file import MongoSource
from ingest.lake import Lake, SourceTable
from ingest.lake.source_tables import ENDED
from ingest.sources.mongodb import collection_catalog, mongodb_server
from ingest.sources.mongodb import stream_scope as scopes
from ingest.sources.mongodb.mongodb_connection import Client
from ingest.sources.mongodb.stream_scope import Scope

_log = logging.getLogger(__name__)


class Survey:
    """The collections of one source. scope: of its stream.

    After `all`: seen: those that can be replicated, by table_id. obstacles: why others can't, by table_id where they
    have one.
    """

    def __init__(self, lake: Lake, source: MongoSource, scope: Scope) -> None:
        self.seen: dict[str, collection_catalog.Collection] = {}
        self.obstacles: dict[str, str] = {}
        self._lake = lake
        self._source = source
        self._scope = scope
        self._reported: set[str] = set()

    def all(self, client: Client) -> None:
        """Look at all collections that are selected. Raises Failure if the stream selects others by now."""
        name = self._source.name
        found = collection_catalog.collections(client, self._source)
        known = self._lake.tables.read(name)
        self.seen, self.obstacles = {}, {}
        present: set[str] = set()
        for each in found:
            row = None if each.uuid is None else each.row(name)
            if row is not None:
                present.add(row.table_id)
            problem = each.problem
            if row is not None and not problem and _is_to_be_read(known.get(row.table_id)):
                problem = collection_catalog.unreadable(client, each)
            if problem:
                self._report(each, problem, row)
            elif row is not None:
                self.seen[row.table_id] = each
        unlisted = {each.database: each.problem for each in found if each.name == collection_catalog.ANY}
        self.obstacles |= {
            row.table_id: unlisted[database]
            for row in known.values()
            if (database := row.table_name.partition(".")[0]) in unlisted
        }
        if rows := [*self._new(known), *self._gone(client, known, present, unlisted)]:
            scopes.confirm(self._lake, self._source, self._scope)
            self._lake.tables.upsert(name, rows)

    def _new(self, known: dict[str, SourceTable]) -> list[SourceTable]:
        rows = []
        for table_id, each in self.seen.items():
            before = known.get(table_id)
            if before is None:
                rows.append(each.row(self._source.name))
            elif before.state == ENDED:
                rows.append(before.with_snapshot_queued("it is back"))
        return rows

    def _gone(
        self, client: Client, known: dict[str, SourceTable], present: set[str], unlisted: Collection[str]
    ) -> list[SourceTable]:
        """Generations that are dropped, renamed away, or no longer selected: their changes are not landed.

        Of a database that can't be listed, nothing is known.
        """
        gone = [
            row
            for row in known.values()
            if row.state != ENDED and row.table_id not in present and row.table_name.partition(".")[0] not in unlisted
        ]
        if not gone:
            return []
        at = mongodb_server.watermark(client, self._scope.level)
        for row in gone:
            _log.warning("%s (%s) is no longer there, or selected; its rows leave", row.table_name, row.table_id)
        return [row.with_changes(state=ENDED, ended_lsn=at) for row in gone]

    def _report(self, each: collection_catalog.Collection, why: str, row: SourceTable | None) -> None:
        if row is not None:
            self.obstacles[row.table_id] = why
        if f"{each.full_name} {why}" not in self._reported:
            self._reported.add(f"{each.full_name} {why}")
            _log.error("%s is left out: %s", each.full_name, why)


def _is_to_be_read(known: SourceTable | None) -> bool:
    return known is None or known.is_pending
