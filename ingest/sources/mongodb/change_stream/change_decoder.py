"""Decodes change stream events into rows of `raw.wal_events`: their order, their table, their document.

No I/O: documents that an event lacks come from a function that is passed in. An event's ordinal is its index among all
events of its clusterTime, before any filter, so a replay gives every row the same position and ordinal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from bson.errors import BSONError

from ingest.common.errors import Failure
from ingest.common.records import DELETE, EVENTS, INSERT, TRUNCATE, UPDATE, EventBatch
from ingest.sources.mongodb import cluster_time
from ingest.sources.mongodb.bson import documents, elements, vector_walk
from ingest.sources.mongodb.bson.documents import DocumentBatch
from ingest.sources.mongodb.bson.elements import Value
from ingest.sources.mongodb.change_stream.change_events import RENAME, Event, Namespace, SplitEventAssembler
from ingest.sources.mongodb.collection_catalog import generation, relation_id
from ingest.sources.mongodb.mongodb_server import is_internal

_ROWS = {"insert": INSERT, "update": UPDATE, "replace": UPDATE, "delete": DELETE}
# Events that end a generation with all its documents; a renamed collection is another table.
_ENDS = ("drop", RENAME)
# Events after which the catalog must be synced.
_CATALOGUE = (*_ENDS, "create", "dropDatabase")

# The number of events decoded at once, and so the most documents looked up for a batch; and the limit of their bytes.
_AT_ONCE = 2000
LOOKED_UP_BYTES = 16 << 20

# Returns the present documents with these `_id`s, at a position or later, by row key; without deleted ones. None: there
# are several, and they are larger than LOOKED_UP_BYTES.
LookUp = Callable[[Namespace, Sequence[Value], int], Mapping[str, bytes] | None]


@dataclass(frozen=True)
class Events:
    """One reply of the server: raw events, and the position before which no more events follow."""

    raw: Sequence[bytes]
    position: int


@dataclass(slots=True)
class _Record:
    """A row of raw.wal_events in the making; its document must be looked up if `missing`. key: see `Event`; None for a
    TRUNCATE. row_key: of `key`, set for many rows at once.
    """

    cluster_time: int
    index: int
    op: str
    commit_ts: int
    transaction: int | None
    namespace: Namespace
    table_id: str
    partition_id: int | None
    key: bytes | None
    document: bytes | None
    row_key: str | None = None

    @property
    def identifier(self) -> Value:
        """The `_id` of the document that was changed."""
        return elements.value(self.key or b"", b"_id")

    @property
    def missing(self) -> bool:
        return self.op == UPDATE and self.document is None


@dataclass
class Decoder:
    """Decodes replies in their order. selects: whether `db.collection` is selected. catalog_changed: called when a
    collection was created, dropped or renamed. renamed: called with the new generation of a renamed collection, and the
    position.
    """

    source: str
    writer: int
    selects: Callable[[str], bool]
    look_up: LookUp
    catalog_changed: Callable[[], None] = lambda: None
    renamed: Callable[[str, int], None] = lambda _table_id, _position: None
    _at_once: int = _AT_ONCE
    _cluster_time: int = 0
    _index: int = 0
    _newest: Event | None = None
    _assembler: SplitEventAssembler = field(default_factory=SplitEventAssembler)
    _tables: dict[tuple[UUID, str], tuple[str, int]] = field(default_factory=dict)

    def feed(self, events: Events) -> Iterator[EventBatch]:
        """The rows of a reply in one batch, or in several if documents are large; the last one proves the position."""
        before, times, end = self._cluster_time, 0, len(events.raw)
        for first in range(0, max(end, 1), _AT_ONCE):
            with documents.gc_paused():
                records, begun = self._read(events.raw[first : first + _AT_ONCE])
            times += begun
            for whole, ends in self._with_documents(records):
                is_last = ends and first + _AT_ONCE >= end
                position = max(events.position, before) if is_last else before
                yield EventBatch(
                    events=self._table(whole),
                    position=position,
                    transactions=times if is_last else 0,
                    in_transaction=self._cluster_time >= position if is_last else True,
                    token=self._newest.token if is_last and self._newest else None,
                )

    def _read(self, raw: Sequence[bytes]) -> tuple[list[_Record], int]:
        """The rows of some events, and the number of clusterTimes that begin with them."""
        records: list[_Record] = []
        times = 0
        for event in self._assembler.assemble(vector_walk.split(raw)):
            times += self._count(event.cluster_time)
            kind = event.kind
            if kind in _CATALOGUE:
                self.catalog_changed()
            if kind in _ROWS:
                self._newest = event
            records += self._records(kind, event)
        of_rows = [(record, record.key) for record in records if record.key is not None]
        keys = self._documents(of_rows).row_keys().to_pylist()
        for (record, _), key in zip(of_rows, keys, strict=True):
            record.row_key = key
        return records, times

    def _count(self, time: int) -> bool:
        """Assign the next ordinal; true: the event is the first of its clusterTime."""
        begins = time != self._cluster_time
        self._cluster_time, self._index = time, 0 if begins else self._index + 1
        return begins

    def _records(self, kind: str, event: Event) -> Iterator[_Record]:
        """The rows of an event. A rename ends the old name, and then the collection that it replaced, if any.

        The second row takes an ordinal of its own, whether or not it is selected.
        """
        uuid = event.uuid
        if uuid is None:  # the drop of a view or of a time series
            return
        if kind in _ROWS:
            if self._is_wanted(event.namespace):
                yield self._row(_ROWS[kind], event, uuid)
        elif kind in _ENDS:
            yield from self._end(event, event.namespace, uuid)
        if kind == RENAME:
            if self._is_wanted(event.rename_target):
                table_id, _ = self._generation(uuid, event.rename_target)
                self.renamed(table_id, self._cluster_time)
            if dropped := event.dropped:
                self._index += 1
                yield from self._end(event, event.rename_target, dropped)

    def _row(self, op: str, event: Event, uuid: UUID) -> _Record:
        table_id, partition_id = self._generation(uuid, event.namespace)
        # The event of a deleted document has its key only.
        document = event.key if op == DELETE else event.document
        return self._record(op, event, event.namespace, table_id, partition_id, event.key, document)

    def _end(self, event: Event, namespace: Namespace, uuid: UUID) -> Iterator[_Record]:
        if self._is_wanted(namespace):
            table_id, _ = self._generation(uuid, namespace)
            yield self._record(TRUNCATE, event, namespace, table_id, None, None, None)

    def _record(self, op: str, event: Event, *rest: Any) -> _Record:
        return _Record(self._cluster_time, self._index, op, event.commit_ts, event.transaction, *rest)

    def _is_wanted(self, namespace: Namespace) -> bool:
        return not is_internal(namespace[1]) and self.selects(".".join(namespace))

    def _generation(self, uuid: UUID, namespace: Namespace) -> tuple[str, int]:
        name = ".".join(namespace)
        if (uuid, name) not in self._tables:
            self._tables[uuid, name] = generation(self.source, uuid, name), relation_id(uuid)
        return self._tables[uuid, name]

    def _with_documents(self, records: Sequence[_Record]) -> Iterator[tuple[list[_Record], bool]]:
        """The rows in parts that fit into memory, with missing documents looked up; and whether a part is the last.

        A looked-up document has its present state. An update whose document was deleted is dropped: its delete follows.
        """
        first = 0
        while True:
            part = records[first : first + self._at_once]
            documents = self._find_documents(part)
            if documents is None:
                self._at_once = len(part) // 2
                continue
            first += len(part)
            is_last = first == len(records)
            yield list(_add_documents(part, documents)), is_last
            if is_last:
                return
            self._at_once = min(2 * self._at_once, _AT_ONCE)

    def _find_documents(self, records: Sequence[_Record]) -> dict[tuple[Namespace, str | None], bytes] | None:
        """The documents that rows lack, by namespace and row key; None if they are too large for one batch."""
        missing = [record for record in records if record.missing]
        wanted: dict[Namespace, dict[str | None, Value]] = {}
        for record in missing:
            wanted.setdefault(record.namespace, {})[record.row_key] = record.identifier
        documents: dict[tuple[Namespace, str | None], bytes] = {}
        looked_up_bytes = 0
        for namespace, identifiers in wanted.items():
            looked_up = self.look_up(namespace, list(identifiers.values()), missing[-1].cluster_time)
            looked_up_bytes += sum(map(len, (looked_up or {}).values()))
            if looked_up is None or (looked_up_bytes > LOOKED_UP_BYTES and len(records) > 1):
                return None
            documents |= {(namespace, key): document for key, document in looked_up.items()}
        # A document is written as often as it was changed.
        size = sum(len(documents.get((record.namespace, record.row_key), b"")) for record in missing)
        return None if size > LOOKED_UP_BYTES and len(records) > 1 else documents

    def _table(self, records: Sequence[_Record]) -> pa.Table:
        same = {
            "source": self.source,
            "writer": self.writer,
            "is_partial": False,
            "old_row_key": None,
            "ingested_at": datetime.now(timezone.utc),
        }
        values = {
            "commit_lsn": [r.cluster_time for r in records],
            "commit_index": [r.index for r in records],
            "change_lsn": [r.index for r in records],
            "commit_ts": [r.commit_ts for r in records],
            "xid": [r.transaction for r in records],
            "op": [r.op for r in records],
            "table_name": [".".join(r.namespace) for r in records],
            "table_id": [r.table_id for r in records],
            "partition_id": [r.partition_id for r in records],
            "row_key": [r.row_key for r in records],
        }
        kinds = {name: EVENTS.field(name).type for name in EVENTS.names}
        arrays = {name: pa.repeat(pa.scalar(value, kinds[name]), len(records)) for name, value in same.items()}
        arrays |= {name: pa.array(column_values, kinds[name]) for name, column_values in values.items()}
        arrays["columns"] = self._columns(records)
        return pa.Table.from_arrays([arrays[name] for name in EVENTS.names], schema=EVENTS)

    def _columns(self, records: Sequence[_Record]) -> pa.Array:
        """The rows' `columns`; null without a document."""
        columns = self._documents([(r, r.document) for r in records if r.document is not None]).columns()
        has_document = np.array([r.document is not None for r in records], np.bool_)
        return columns.take(pa.array(np.cumsum(has_document) - 1, mask=~has_document))

    def _documents(self, raw: Sequence[tuple[_Record, bytes]]) -> DocumentBatch:
        """The documents of rows. Raises Failure that names the first one that can't be decoded."""
        try:
            return DocumentBatch([document for _, document in raw])
        except BSONError:
            for record, document in raw:
                self._check(record, document)
            raise

    def _check(self, record: _Record, raw: bytes) -> None:
        try:
            documents.parse(raw)
        except BSONError as error:
            raise Failure(
                f"a document can't be decoded ({error})",
                f"source {self.source}, {'.'.join(record.namespace)} {record.row_key or ''}, "
                f"changed at {cluster_time.format_position(record.cluster_time)}",
                f"Correct the document, then run `tidemark resnapshot --all --source {self.source}`",
            ) from error


def _add_documents(
    records: Sequence[_Record], documents: Mapping[tuple[Namespace, str | None], bytes]
) -> Iterator[_Record]:
    for record in records:
        if not record.missing:
            yield record
        elif document := documents.get((record.namespace, record.row_key)):
            yield replace(record, document=document)
