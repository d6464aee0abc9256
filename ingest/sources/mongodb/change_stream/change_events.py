"""Change stream events by their fields, each read when it is asked for. Pure.

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
    """An event, or a fragment of one, which may have nothing but its token and one large field."""

    raw: Fields

    @property
    def kind(self) -> str:
        """Its `operationType`; empty if a fragment has none."""
        return _text(self.raw.get(b"operationType", _NO_TEXT))

    @property
    def at(self) -> int:
        """Its clusterTime as a position."""
        return int.from_bytes(self.raw[b"clusterTime"][1], "little")

    @property
    def commit_ts(self) -> int:
        """Microseconds since 1970; before MongoDB 6.0 no better than the clusterTime."""
        wall = self.raw.get(b"wallTime")
        return _number(wall) * 1000 if wall else (self.at >> 32) * 1_000_000

    @property
    def transaction(self) -> int | None:
        """The transaction's number in its session, if it was one."""
        number = self.raw.get(b"txnNumber")
        return None if number is None else _number(number)

    @property
    def token(self) -> str:
        """What a stream may be resumed behind."""
        return _text(fields(self.raw[b"_id"][1])[b"_data"])

    @property
    def namespace(self) -> Namespace:
        """What it is of; of a database alone the second is empty."""
        return _namespace(self.raw[b"ns"][1]) if b"ns" in self.raw else ("", "")

    @property
    def uuid(self) -> UUID | None:
        """The collection's; views and time series have none."""
        return _uuid(self.raw.get(b"collectionUUID"))

    @property
    def taken(self) -> Namespace:
        """The name that a renamed collection has got."""
        return _namespace(self.raw[b"to"][1])

    @property
    def dropped(self) -> UUID | None:
        """Of a renamed collection the one whose name it took."""
        described = self.raw.get(b"operationDescription")
        return _uuid(fields(described[1]).get(b"dropTarget")) if described else None

    @property
    def key(self) -> bytes:
        """The document that has the `_id`, and the shard key, of the one that was changed."""
        return self.raw[b"documentKey"][1]

    @property
    def document(self) -> bytes | None:
        """The document after the change, if the event has it."""
        kind, own = self.raw.get(b"fullDocument", (NULL, b""))
        return None if kind == NULL else own


@dataclass
class Fragments:
    """Puts events together that the server has split."""

    _fields: Fields = field(default_factory=dict)

    def whole(self, parts: Iterable[Fields]) -> Iterator[Event]:
        """The events that are whole with one of these parts."""
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
    # The server has collections whose names are no UTF-8.
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
    found = {name: _text(value) for name, value in fields(raw).items()}
    return found[b"db"], found.get(b"coll", "")
