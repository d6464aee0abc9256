"""Change stream events, with fields that are decoded on access. Pure.

https://www.mongodb.com/docs/manual/reference/change-events/
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias
from uuid import UUID

from ingest.sources.mongodb.bson.elements import NULL, Fields, Value, fields

RENAME = "rename"
INVALIDATE = "invalidate"

# Database and collection.
Namespace: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Event:
    """An event, or a fragment of one, which may have only its token and one large field."""

    raw: Fields

    @property
    def kind(self) -> str:
        """Its `operationType`; empty if a fragment has none."""
        return _text(self.raw.get(b"operationType", _NO_TEXT))

    @property
    def cluster_time(self) -> int:
        """Its clusterTime as a position."""
        return int.from_bytes(self.raw[b"clusterTime"][1], "little")

    @property
    def commit_ts(self) -> int:
        """Microseconds since 1970; before MongoDB 6.0 with the clusterTime's resolution of seconds."""
        wall = self.raw.get(b"wallTime")
        return _number(wall) * 1000 if wall else (self.cluster_time >> 32) * 1_000_000

    @property
    def transaction(self) -> int | None:
        """The transaction's number in its session; None: not in a transaction."""
        number = self.raw.get(b"txnNumber")
        return None if number is None else _number(number)

    @property
    def token(self) -> str:
        """The resume token of the event."""
        return _text(fields(self.raw[b"_id"][1])[b"_data"])

    @property
    def namespace(self) -> Namespace:
        """The event's namespace; for an event of a database, the collection is empty."""
        return _namespace(self.raw[b"ns"][1]) if b"ns" in self.raw else ("", "")

    @property
    def uuid(self) -> UUID | None:
        """The collection's UUID; None for views and time series."""
        return _uuid(self.raw.get(b"collectionUUID"))

    @property
    def rename_target(self) -> Namespace:
        """The new name of a renamed collection."""
        return _namespace(self.raw[b"to"][1])

    @property
    def dropped(self) -> UUID | None:
        """The UUID of the collection that a rename replaced."""
        described = self.raw.get(b"operationDescription")
        return _uuid(fields(described[1]).get(b"dropTarget")) if described else None

    @property
    def key(self) -> bytes:
        """The documentKey: a document with the `_id` and the shard key of the changed document."""
        return self.raw[b"documentKey"][1]

    @property
    def document(self) -> bytes | None:
        """The document after the change, if the event has it."""
        kind, own = self.raw.get(b"fullDocument", (NULL, b""))
        return None if kind == NULL else own


@dataclass
class SplitEventAssembler:
    """Reassembles events that the server has split."""

    _fields: Fields = field(default_factory=dict)

    def assemble(self, parts: Iterable[Fields]) -> Iterator[Event]:
        """The events that these parts complete."""
        for part in parts:
            split = part.pop(b"splitEvent", None)
            if split is None:
                yield Event(part)
                continue
            self._fields |= part
            place = fields(split[1])
            if place[b"fragment"] == place[b"of"]:
                complete, self._fields = self._fields, {}
                yield Event(complete)


_NO_TEXT: Value = 0x02, b"\1\0\0\0\0"


def _text(value: Value) -> str:
    # The server allows collection names that are not UTF-8.
    return value[1][4:-1].decode(errors="backslashreplace")


def _number(value: Value) -> int:
    return int.from_bytes(value[1], "little", signed=True)


def _uuid(value: Value | None) -> UUID | None:
    return None if value is None else _known_uuid(value[1])


@lru_cache(maxsize=1024)
def _known_uuid(binary: bytes) -> UUID:
    return UUID(bytes=binary[5:21])


@lru_cache(maxsize=1024)
def _namespace(raw: bytes) -> Namespace:
    names = {name: _text(value) for name, value in fields(raw).items()}
    return names[b"db"], names.get(b"coll", "")
