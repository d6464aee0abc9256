"""Change stream events as records of `raw.wal_events`: their order, their table, their document.

No I/O: documents that an event doesn't carry come from a function that is given. An event's ordinal is its place among
all events of its clusterTime, whatever becomes of it, so a replay gives every record the same pair.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any
from uuid import UUID

import pyarrow as pa
from bson.errors import BSONError

from ingest.change import DELETE, EVENTS, INSERT, TRUNCATE, UPDATE, EventBatch
from ingest.errors import Failure
from ingest.mongodb import clustertime, documents, elements
from ingest.mongodb.catalog import generation, relation_id
from ingest.mongodb.documents import Parsed
from ingest.mongodb.server import is_internal

_ROWS = {"insert": INSERT, "update": UPDATE, "replace": UPDATE, "delete": DELETE}
# What takes all documents of a collection away; a renamed one has another name, so it is another table.
RENAME = "rename"
_ENDS = ("drop", RENAME)
# After these the catalogue is to be looked at.
_CATALOGUE = (*_ENDS, "create", "dropDatabase")
INVALIDATE = "invalidate"

# Events that are parsed at a time, and so the most that a batch has looked up; the BSON bytes of what is.
_AT_ONCE = 500
LOOKED_UP_BYTES = 16 << 20

# Where an event has its own bytes, beside what is parsed of them.
_BYTES = ""

Namespace = tuple[str, str]


@dataclass(frozen=True)
class Found:
    """A document that was looked up; size: of its BSON, in bytes."""

    document: Parsed
    size: int


# Gives documents as they are at a position or later, by row key; asked for by their `_id`s, the same bytes as in events
# (`elements.value`). Those that are gone are not there. None: there are several, and they are larger than
# LOOKED_UP_BYTES.
LookUp = Callable[[Namespace, Sequence[bytes], int], Mapping[str, Found] | None]


@dataclass(frozen=True)
class Events:
    """What one reply of the server held: raw events, and the position before which there are no more."""

    raw: Sequence[bytes]
    position: int


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
    def identifier(self) -> bytes:
        """The `_id` of a record that is of one document, as bytes."""
        return elements.value(elements.value(self.event[_BYTES], b"documentKey")[1:], b"_id")

    @cached_property
    def row_key(self) -> str:
        """See `documents.row_key`."""
        return documents.row_key(self.event["documentKey"]["_id"])

    @property
    def missing(self) -> bool:
        return self.op == UPDATE and self.document is None


@dataclass
class Decoder:
    """Takes replies in their order. selects: whether `db.collection` is wanted. catalogue: called when a collection was
    made, dropped or renamed. renamed: when one has got a name; the generation that it is under that, and the position.
    """

    source: str
    writer: int
    selects: Callable[[str], bool]
    look_up: LookUp
    catalogue: Callable[[], None] = lambda: None
    renamed: Callable[[str, int], None] = lambda _table_id, _at: None
    _at_once: int = _AT_ONCE
    _at: int = 0
    _index: int = 0
    _token: str | None = None
    _fragments: Parsed = field(default_factory=dict)
    _tables: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def feed(self, events: Events) -> Iterator[EventBatch]:
        """The records of a reply, in one batch, or several if documents are large; the last proves the position."""
        before, times, end = self._at, 0, len(events.raw)
        for at in range(0, max(end, 1), _AT_ONCE):
            records, begun = documents.uncollected(partial(self._parsed, events.raw[at : at + _AT_ONCE]))
            times += begun
            for whole, ends in self._with_documents(records):
                is_last = ends and at + _AT_ONCE >= end
                position = max(events.position, before) if is_last else before
                yield EventBatch(
                    events=self._table(whole),
                    position=position,
                    transactions=times if is_last else 0,
                    in_transaction=self._at >= position if is_last else True,
                    token=self._token if is_last else None,
                )

    def _parsed(self, events: Sequence[bytes]) -> tuple[list[_Record], int]:
        """The records of some events, and how many clusterTimes begin with them."""
        records: list[_Record] = []
        times = 0
        for raw in events:
            event = self._whole(self._event(raw))
            if event is None:
                continue
            times += self._count(event)
            if event["operationType"] in _CATALOGUE:
                self.catalogue()
            if event["operationType"] in _ROWS:
                self._token = event["_id"]["_data"]
            records += self._records(event)
        return records, times

    def _event(self, raw: bytes) -> Parsed:
        try:
            event = documents.parse(raw)
        except BSONError as error:
            raise Failure(
                f"a change event can't be decoded ({error})",
                f"source {self.source}, after {clustertime.readable(self._at)}",
                "Correct the document, then run `tidemark resnapshot --all`",
            ) from error
        if "documentKey" in event:  # of a split event, in one of its fragments
            event[_BYTES] = raw
        return event

    def _whole(self, event: Parsed) -> Parsed | None:
        """The event, when the last of its fragments is there."""
        split = event.pop("splitEvent", None)
        if split is None:
            return event
        self._fragments |= event
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

    def _records(self, event: Parsed) -> Iterator[_Record]:
        """An event's records: of a renamed collection's name, then of the name that it took from another, if it did.

        The second has an ordinal of its own, whatever is selected.
        """
        kind, place, uuid = event["operationType"], event.get("ns", {}), event.get("collectionUUID")
        if uuid is None:  # the drop of a view or of a time series
            return
        if kind in _ROWS or kind in _ENDS:
            yield from self._of(kind, event, place, uuid)
        if kind == RENAME:
            taken = event["to"]
            if self._is_wanted(taken):
                table_id, _ = self._generation(uuid, _full_name(taken))
                self.renamed(table_id, self._at)
            if dropped := event.get("operationDescription", {}).get("dropTarget"):
                self._index += 1
                yield from self._of(kind, event, taken, dropped)

    def _of(self, kind: str, event: Parsed, place: Parsed, uuid: Parsed) -> Iterator[_Record]:
        if self._is_wanted(place):
            table_id, leaf_id = self._generation(uuid, _full_name(place))
            op = _ROWS.get(kind, TRUNCATE)
            # Of a deleted document the key alone is known.
            document = event["documentKey"] if op == DELETE else event.get("fullDocument")
            namespace = place["db"], place["coll"]
            yield _Record(self._at, self._index, op, event, namespace, table_id, leaf_id, document)

    def _is_wanted(self, place: Parsed) -> bool:
        return not is_internal(place["coll"]) and self.selects(_full_name(place))

    def _generation(self, binary_uuid: Parsed, name: str) -> tuple[str, int]:
        binary = binary_uuid["$binary"]["base64"]
        if (binary, name) not in self._tables:
            uuid = UUID(bytes=b64decode(binary))
            self._tables[binary, name] = generation(self.source, uuid, name), relation_id(uuid)
        return self._tables[binary, name]

    def _with_documents(self, records: Sequence[_Record]) -> Iterator[tuple[list[_Record], bool]]:
        """With the documents looked up that updates lack, each as it is now, in parts that fit into memory; whether it
        is the last. An update whose document is gone changes nothing: its delete will come.
        """
        at = 0
        while True:
            part = records[at : at + self._at_once]
            found = self._found(part)
            if found is None:
                self._at_once = len(part) // 2
                continue
            at += len(part)
            is_last = at == len(records)
            yield list(_completed(part, found)), is_last
            if is_last:
                return
            self._at_once = min(2 * self._at_once, _AT_ONCE)

    def _found(self, records: Sequence[_Record]) -> dict[tuple[Namespace, str], Found] | None:
        """The documents that records lack, by namespace and row key; None if they are too large for one batch."""
        missing = [record for record in records if record.missing]
        wanted: dict[Namespace, dict[str, bytes]] = {}
        for record in missing:
            wanted.setdefault(record.namespace, {})[record.row_key] = record.identifier
        found: dict[tuple[Namespace, str], Found] = {}
        for namespace, identifiers in wanted.items():
            each = self.look_up(namespace, list(identifiers.values()), missing[-1].at)
            if each is None:
                return None
            found |= {(namespace, key): one for key, one in each.items()}
        # A document is written as often as it was changed.
        size = sum(found[key].size for record in missing if (key := (record.namespace, record.row_key)) in found)
        return None if size > LOOKED_UP_BYTES and len(records) > 1 else found

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
            "row_key": (None if r.op == TRUNCATE else r.row_key for r in records),
            "prev_row_key": (None for _ in records),
        }
        arrays |= {name: pa.array(list(each), EVENTS.field(name).type) for name, each in values.items()}
        arrays["columns"] = documents.columns(None if r.op == TRUNCATE else r.document for r in records)
        return pa.Table.from_arrays([arrays[name] for name in EVENTS.names], schema=EVENTS)


def _completed(records: Sequence[_Record], found: Mapping[tuple[Namespace, str], Found]) -> Iterator[_Record]:
    for record in records:
        if not record.missing:
            yield record
        elif one := found.get((record.namespace, record.row_key)):
            yield replace(record, document=one.document)


def _full_name(place: Parsed) -> str:
    return f"{place['db']}.{place['coll']}"


def _wall_time(record: _Record) -> int:
    """Microseconds since 1970."""
    wall = record.event.get("wallTime")
    return int(wall["$date"]["$numberLong"]) * 1000 if wall else (record.at >> 32) * 1_000_000


def _transaction(event: Parsed) -> int | None:
    """The transaction's number in its session, if it was one."""
    number = event.get("txnNumber")
    return None if number is None else int(next(iter(number.values())))
