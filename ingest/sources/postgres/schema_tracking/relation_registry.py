"""What the decoder asks about relations: the table that each is of, and its key in key order.

The stream says how a relation looked when it was changed; the catalogue, how it looks now. The
stream's word counts; the catalogue adds the root of a partition and the order of the key, and a
generation registered in the lake answers for what the catalogue has forgotten. Each answer is
preceded by a look whether the table is still what the lake takes it for: a new snapshot is queued
before the first changed row can be seen.
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
from ingest.sources.postgres.pgoutput.messages import Relation, TableInfo
from ingest.sources.postgres.postgres_connection import TRANSIENT_ERRORS, CannotConnect, LazyConnection
from ingest.sources.postgres.schema_tracking.table_sync import Survey
from ingest.sources.postgres.slots.replication_slots import Cancelled

_log = logging.getLogger(__name__)


class CatalogRegistry:
    """The decoder's `Registry` of one source.

    unselected: generations that are published, but not selected in sources.yml; their rows are not
    to be landed. queued: called when a snapshot was queued. wait: waits so many seconds, true if it
    is to give up.
    """

    def __init__(
        self,
        source: str,
        selects: Callable[[str], bool],
        link: LazyConnection,
        survey: Survey,
        queued: Callable[[], None],
        wait: Callable[[float], bool],
    ) -> None:
        self.unselected: set[str] = set()
        self._source = source
        self._selects = selects
        self._link = link
        self._survey = survey
        self._queued = queued
        self._wait = wait
        self._repeats = Repeats(_log)

    def describe(self, relation: Relation, *, again: bool = False) -> TableInfo:
        """See `Registry`. Retries while the source can't be reached; raises Cancelled if the job is stopped."""
        now = self._look(relation.oid)
        known = [t for t in self._survey.known.values() if _holds(t, relation.oid)]
        info = describe(self._source, relation, now, known, again=again)
        if not self._selects(info.table_name):
            self.unselected.add(info.table_id)
        row = self._survey.known.get(info.table_id)
        return replace(info, other_names=bool(now and row and has_other_names(relation, now, row)))

    def refresh(self) -> None:
        """Read what the lake says of the tables now."""
        self._survey.refreshed()

    def received(self) -> None:
        """More of the log is there: what the publications send may be something else by now."""
        self._survey.is_stale = True

    def check_published(self, publication: str) -> None:
        """Raises Failure if it is gone: from 18 on, the server leaves out what it would have sent, and says nothing."""
        try:
            is_there = publications.is_there(self._link.get(), publication)
        except (CannotConnect, psycopg.OperationalError):
            return  # a matter of who reads the stream
        if not is_there:
            raise Failure(
                "the publication is gone, and what is changed without it does not come with the stream",
                f"source {self._source}, publication {publication}",
                "Start the stream again, which makes it anew if the role may; its tables are read anew then",
            )

    def replaced(self, changed: Mapping[TableInfo, int]) -> set[TableInfo]:
        """The changed generations that are not registered, or have ended, though their tables are there."""
        live = self.live()
        gone = (info for info, rows in self._taken_for(changed).items() if rows and info.table_id not in live)
        return {info for info in gone if info.table_id not in self.unselected}

    def live(self) -> frozenset[str]:
        """The generations, by table_id, that there are by what the lake said last."""
        return frozenset(row.table_id for row in self._survey.known.values() if row.state != ENDED)

    def strayed(self, changed: Mapping[TableInfo, int]) -> None:
        """Changes up to these positions are to be landed: tables that they are missing from are to be read anew.

        Those of one generation are missing from the other that the table was taken for: its identity, key or name was
        switched to and fro between two looks. So are values under another name of their column.
        """
        while lacking := self._lacking(changed):
            why = "its identity, key, name or a column's name had been another one for a while"
            if self._survey.put([row.queued(why) for row in lacking.values()]):
                self._queued()
            self._survey.refreshed()

    def undecided(self, changed: Mapping[TableInfo, int]) -> dict[TableInfo, int]:
        """Those of the changes that a snapshot may lack: it waits, or has not told its stamp yet."""
        taken_for = self._taken_for(changed)
        return {info: lsn for info, lsn in changed.items() if any(row.state == QUEUED for row in taken_for[info])}

    def left(self, undecided: Mapping[TableInfo, int]) -> None:
        """Nobody will look again at these changes: a snapshot that was planned without them is not to be begun."""
        told: set[str] = set()
        while True:
            self._survey.refreshed()
            self.strayed(undecided)
            rows = [row for rows in self._taken_for(undecided).values() for row in rows]
            waiting = {row.table_id: row for row in rows if row.state == QUEUED and row.table_id not in told}
            if not waiting:
                return
            told.update(
                row.table_id for row in self._survey.put([row.queued(row.note or "") for row in waiting.values()])
            )

    def _lacking(self, changed: Mapping[TableInfo, int]) -> dict[str, SourceTable]:
        """The generations, by table_id, that lack one of these changes."""
        return {
            row.table_id: row
            for info, rows in self._taken_for(changed).items()
            for row in rows
            if row.state in (RUNNING, DONE) and changed[info] >= (row.snapshot_lsn or 0)
        }

    def _taken_for(self, changed: Mapping[TableInfo, int]) -> dict[TableInfo, list[SourceTable]]:
        """What else the tables of changes are registered as; with other names for their columns, also as themselves."""
        of_relation: dict[int, dict[str, SourceTable]] = {}
        for row in self._survey.known.values():
            if row.state != ENDED:
                for oid in (row.relation_id, *(leaf.partition_id for leaf in row.leaves)):
                    of_relation.setdefault(oid, {})[row.table_id] = row
        none: dict[str, SourceTable] = {}
        return {
            info: [
                row
                # A partition may have been, or be again, a table of its own, or one of another.
                for row in {**of_relation.get(info.root_id, none), **of_relation.get(info.partition_id, none)}.values()
                if row.table_id != info.table_id or info.other_names
            ]
            for info in changed
        }

    def _look(self, oid: int) -> CatalogTable | None:
        """The catalogue's table, once the lake knows what has become of it. Raises Cancelled."""
        while True:
            try:
                now = catalog_tables.table_of(self._link.get(), oid)
                if now is not None and self._survey.one(now):
                    self._queued()
                self._repeats.over(f"source {self._source}: the catalog can be read again")
                return now
            except (CannotConnect, psycopg.OperationalError, *TRANSIENT_ERRORS) as error:
                if self._wait(1.0):
                    raise Cancelled from error
                why = self._link.describe_error(error)
                message = f"source {self._source}: the catalog can't be read at the moment ({why})"
                self._repeats.occurred(message, key="look")


def describe(
    source: str,
    relation: Relation,
    now: CatalogTable | None,
    known: Sequence[SourceTable],
    *,
    again: bool = False,
) -> TableInfo:
    """The table that a relation of the stream is, or is a leaf of. Pure.

    now: the catalogue's, None if it has gone; known: registered generations that have the relation. again: see
    `Registry`: not all versions of the server tell of a schema's new name.
    """
    root = now.oid if now else known[0].relation_id if known else relation.oid
    name = f"{relation.schema}.{relation.name}"
    if now and again:
        name = now.table_name
    elif root != relation.oid:
        name = now.table_name if now else known[0].table_name
    key = _key(relation, now, known)
    generation = table_id(source, root, name, key, relation.identity)
    return TableInfo(generation, name, relation.oid, root, key)


def has_other_names(relation: Relation, now: CatalogTable, known: SourceTable) -> bool:
    """Whether columns of the stream's relation may have another name by now, or had it in between. Pure.

    One that neither the catalogue nor the lake has heard of was renamed since, or dropped before anybody saw it; and so
    may have been one that is not there now, if another is missing. The others stand in the order of the catalogue, and
    what the stream lacks of that is younger, at its end.
    """
    there, registered = now.names.get(relation.oid, ()), {column.name for column in known.columns}
    if not registered.union(there, known.dropped or ()).issuperset(relation.column_names):
        return True
    expected = [name for name in there if name in registered]
    found = [name for name in relation.column_names if name in expected]
    is_replaced = len(found) < len(expected) and not set(there).issuperset(relation.column_names)
    return is_replaced or found != expected[: len(found)]


def _holds(table: SourceTable, oid: int) -> bool:
    return table.relation_id == oid or any(leaf.partition_id == oid for leaf in table.leaves)


def _key(relation: Relation, now: CatalogTable | None, known: Sequence[SourceTable]) -> tuple[str, ...] | None:
    """The key in key order, of the catalogue or else of a registered generation, if it is the
    stream's.
    """
    candidates = [now.key_columns] if now and now.identity == relation.identity else []
    candidates += [t.key_columns for t in known if t.replica_identity == relation.identity]
    if relation.identity == "f":
        names = set(relation.column_names)
        return next((key for key in candidates if key is None or set(key) <= names), None)
    flagged = relation.identity_columns
    if relation.identity == "n" or not flagged:
        return None
    return next((key for key in candidates if key and set(key) == set(flagged)), flagged)
