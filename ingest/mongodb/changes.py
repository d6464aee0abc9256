"""Change stream events as records of `raw.wal_events`: their order, their table, their document.

No I/O: documents that an event doesn't carry come from a function that is given. An event's ordinal is its place among
all events of its clusterTime, whatever becomes of it, so a replay gives every record the same pair.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import pyarrow as pa

from ingest.change import DELETE, EVENTS, INSERT, TRUNCATE, UPDATE, EventBatch
from ingest.mongodb import clustertime, documents
from ingest.mongodb.catalog import generation, relation_id
from ingest.mongodb.documents import Parsed
from ingest.mongodb.server import is_ours

_ROWS = {"insert": INSERT, "update": UPDATE, "replace": UPDATE, "delete": DELETE}
# What takes all documents of a collection away; a renamed one has another name, so it is another table.
_ENDS = ("drop", "rename")
# After these the catalogue is to be looked at.
_CATALOGUE = (*_ENDS, "create", "dropDatabase")
INVALIDATE = "invalidate"

Namespace = tuple[str, str]
# Gives the documents with these `_id`s (JSON texts as in events), by that text; those that are gone are not there.
LookUp = Callable[[Namespace, Sequence[str]], Mapping[str, Parsed]]


@dataclass(frozen=True)
class Events:
    """What one reply of the server held: raw events, and the position before which there are no more."""

    raw: Sequence[bytes]
    position: int

    def parts(self, size: int) -> Iterator["Events"]:
        """The same in parts of up to `size` events, of which the last alone proves the position."""
        last = max(len(self.raw) - 1, 0) // size * size
        for at in range(0, last, size):
            yield Events(self.raw[at : at + size], 0)
        yield Events(self.raw[last:], self.position)


@dataclass(frozen=True)
class _Record:
    """A row of raw.wal_events to be; its document is yet to be looked up if `missing`."""

    at: int
    index: int
    op: str
    event: Parsed
    namespace: Namespace
    table_id: str
    leaf_id: int
    document: Parsed | None = None

    @property
    def identifier(self) -> Any:
        """The parsed `_id` of a record that is of one document."""
        return self.event["documentKey"]["_id"]

    @property
    def missing(self) -> bool:
        return self.op == UPDATE and self.document is None


@dataclass
class Decoder:
    """Takes replies in their order. selects: whether `db.collection` is wanted. catalogue: called when a collection was
    made, dropped or renamed.
    """

    source: str
    writer: int
    selects: Callable[[str], bool]
    look_up: LookUp
    catalogue: Callable[[], None] = lambda: None
    _at: int = 0
    _index: int = 0
    _fragments: Parsed = field(default_factory=dict)
    _tables: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def feed(self, events: Events) -> EventBatch:
        """The records of a reply, and the position that it proves."""
        before, times = self._at, 0
        records = []
        for raw in events.raw:
            event = self._whole(documents.parse(raw))
            if event is None:
                continue
            times += self._count(event)
            if event["operationType"] in _CATALOGUE:
                self.catalogue()
            record = self._record(event)
            if record is not None:
                records.append(record)
        position = max(events.position, before)
        return EventBatch(
            events=self._table(self._with_documents(records)),
            position=position,
            transactions=times,
            in_transaction=self._at >= position,
        )

    def _whole(self, event: Parsed) -> Parsed | None:
        """The event, when the last of its fragments is there."""
        split = event.pop("splitEvent", None)
        if split is None:
            return event
        self._fragments |= {name: value for name, value in event.items() if name != "_id"}
        if split["fragment"] != split["of"]:
            return None
        whole, self._fragments = self._fragments, {}
        return whole

    def _count(self, event: Parsed) -> bool:
        """Give the event its ordinal; whether it begins a clusterTime."""
        at = clustertime.of_parsed(event["clusterTime"])
        begins = at != self._at
        self._at, self._index = at, 0 if begins else self._index + 1
        return begins

    def _record(self, event: Parsed) -> _Record | None:
        kind, place = event["operationType"], event.get("ns", {})
        if kind not in _ROWS and kind not in _ENDS:
            return None
        namespace = place["db"], place["coll"]
        if is_ours(place) or place["coll"].startswith("system.") or not self.selects(".".join(namespace)):
            return None
        table_id, leaf_id = self._generation(event, ".".join(namespace))
        op = _ROWS.get(kind, TRUNCATE)
        # Of a deleted document the key alone is known.
        document = event["documentKey"] if op == DELETE else event.get("fullDocument")
        return _Record(self._at, self._index, op, event, namespace, table_id, leaf_id, document)

    def _generation(self, event: Parsed, name: str) -> tuple[str, int]:
        binary = event["collectionUUID"]["$binary"]["base64"]
        if (binary, name) not in self._tables:
            uuid = UUID(bytes=b64decode(binary))
            self._tables[binary, name] = generation(self.source, uuid, name), relation_id(uuid)
        return self._tables[binary, name]

    def _with_documents(self, records: Sequence[_Record]) -> list[_Record]:
        """With the documents looked up that updates lack, each as it is now; an update whose document is gone changes
        nothing: its delete will come.
        """
        wanted: dict[Namespace, dict[str, None]] = {}
        for record in records:
            if record.missing:
                wanted.setdefault(record.namespace, {})[documents.json_text(record.identifier)] = None
        if not wanted:
            return list(records)
        found = {namespace: self.look_up(namespace, list(keys)) for namespace, keys in wanted.items()}
        whole = []
        for record in records:
            document = record.document
            if record.missing:
                document = found[record.namespace].get(documents.json_text(record.identifier))
            if document is not None or record.op == TRUNCATE:
                whole.append(replace(record, document=document))
        return whole

    def _table(self, records: Sequence[_Record]) -> pa.Table:
        count = len(records)
        same = {
            "source": self.source,
            "writer": self.writer,
            "partial": False,
            "ingested_at": datetime.now(timezone.utc),
        }
        arrays: dict[str, pa.Array] = {
            name: pa.repeat(pa.scalar(value, EVENTS.field(name).type), count) for name, value in same.items()
        }
        values: dict[str, Iterable[Any]] = {
            "commit_lsn": (r.at for r in records),
            "commit_index": (r.index for r in records),
            "change_lsn": (r.index for r in records),
            "commit_ts": (_wall_time(r) for r in records),
            "xid": (_transaction(r.event) for r in records),
            "op": (r.op for r in records),
            "table_name": (".".join(r.namespace) for r in records),
            "table_id": (r.table_id for r in records),
            "leaf_id": (None if r.op == TRUNCATE else r.leaf_id for r in records),
            "row_key": (None if r.op == TRUNCATE else documents.row_key(r.identifier) for r in records),
            "prev_row_key": (None for _ in records),
        }
        arrays |= {name: pa.array(list(each), EVENTS.field(name).type) for name, each in values.items()}
        arrays["columns"] = documents.columns(None if r.op == TRUNCATE else r.document for r in records)
        return pa.Table.from_arrays([arrays[name] for name in EVENTS.names], schema=EVENTS)


def _wall_time(record: _Record) -> int:
    """Microseconds since 1970."""
    wall = record.event.get("wallTime")
    return int(wall["$date"]["$numberLong"]) * 1000 if wall else (record.at >> 32) * 1_000_000


def _transaction(event: Parsed) -> int | None:
    """The transaction's number in its session, if it was one."""
    number = event.get("txnNumber")
    return None if number is None else int(next(iter(number.values())))
