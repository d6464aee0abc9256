"""What the decoder asks about relations, and what the lake is told of generations that the stream shows first.

The stream says how a relation looked when it was changed; the catalogue, how it looks now. The stream's word
counts; the catalogue adds the root of a partition and the key's order, and a generation already registered
answers for what the catalogue has forgotten.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from ingest.change import table_id
from ingest.lake.tables import Column, Leaf, SourceTable
from ingest.postgres import catalog
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import Connection
from ingest.postgres.messages import Relation, TableInfo

_log = logging.getLogger(__name__)


class CatalogRegistry:
    """The decoder's `Registry` of one source.

    connection: gives a connection to the catalogue. registered: reads the generations in the lake. changed:
    called with each generation that the stream shows, and the catalogue's table if that is the same one.
    """

    def __init__(
        self,
        source: str,
        connection: Callable[[], Connection],
        registered: Callable[[], Iterable[SourceTable]],
        changed: Callable[[SourceTable, CatalogTable | None], None],
    ) -> None:
        self._source = source
        self._connection = connection
        self._registered = registered
        self._changed = changed

    def describe(self, relation: Relation) -> TableInfo:
        """See `Registry`; asks the catalogue each time, as Relation messages are rare."""
        now = catalog.table_of(self._connection(), relation.oid)
        known = [t for t in self._registered() if _holds(t, relation.oid)]
        root = now.oid if now else known[0].relation_id if known else relation.oid
        whole = root == relation.oid
        name = f"{relation.schema}.{relation.name}" if whole else _root_name(now, known)
        keys = _keys(relation, now, known)
        generation = table_id(self._source, root, name, keys, relation.identity)
        same = now if now and now.table_id(self._source) == generation else None
        self._changed(self._row(relation, generation, root, name, keys, same), same)
        return TableInfo(generation, name, relation.oid, keys, whole)

    def _row(
        self,
        relation: Relation,
        generation: str,
        root: int,
        name: str,
        keys: tuple[str, ...] | None,
        same: CatalogTable | None,
    ) -> SourceTable:
        if same is not None:
            return same.row(self._source)
        columns = tuple(
            Column(column.name, place, str(column.type_oid))
            for place, column in enumerate(relation.columns, 1)
        )
        leaf = Leaf(relation.oid, f"{relation.schema}.{relation.name}", 0)
        return replace(
            SourceTable(
                self._source,
                generation,
                name,
                root,
                relation.identity,
                keys,
                columns,
                (leaf,),
            ),
            note="as the stream showed it; the table has been altered or dropped since",
        )


def _holds(table: SourceTable, oid: int) -> bool:
    return table.relation_id == oid or any(leaf.leaf_id == oid for leaf in table.leaves)


def _root_name(now: CatalogTable | None, known: list[SourceTable]) -> str:
    return now.table_name if now else known[0].table_name


def _keys(
    relation: Relation, now: CatalogTable | None, known: list[SourceTable]
) -> tuple[str, ...] | None:
    """The key in key order, of the catalogue or else of a registered generation, if it is that of the stream."""
    flagged = relation.identity_columns
    candidates = [now.key_columns] if now and now.identity == relation.identity else []
    candidates += [t.key_columns for t in known if t.replica_identity == relation.identity]
    if relation.identity == "f":
        names = set(relation.column_names)
        return next((key for key in candidates if key is None or set(key) <= names), None)
    if relation.identity == "n" or not flagged:
        return None
    return next((key for key in candidates if key and set(key) == set(flagged)), flagged)
