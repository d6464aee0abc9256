"""Elements of BSON documents as the bytes that they are, for what no decoder takes, or gives back as it was. Pure.

https://bsonspec.org/spec.html
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument

_DOCUMENT, _ARRAY, _BINARY, _REGEX, _POINTER, _SCOPED_CODE = 0x03, 0x04, 0x05, 0x0B, 0x0C, 0x0F
# How many bytes values have whose type alone tells it; how many others have besides what they begin by saying.
_FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
_BESIDES = {0x02: 4, _DOCUMENT: 0, _ARRAY: 0, _BINARY: 5, _POINTER: 16, 0x0D: 4, 0x0E: 4, _SCOPED_CODE: 0}
_GENERIC, _OLD = 0x00, 0x02


@dataclass(frozen=True)
class Element:
    """One of a document, whose value is at `start:end` of it."""

    kind: int
    name: bytes
    start: int
    end: int


def elements(document: bytes | bytearray, start: int = 0) -> Iterator[Element]:
    """The elements of the document that begins at `start`, in order. Raises InvalidBSON for a type that there isn't."""
    at = start + 4
    while kind := document[at]:
        named = document.index(0, at + 1)
        element = Element(kind, bytes(document[at + 1 : named]), named + 1, _end(document, kind, named + 1))
        yield element
        at = element.end


def value(document: bytes, name: bytes) -> bytes:
    """The value of the first element of a name: the byte of its type, and its own. Raises KeyError."""
    for element in elements(document):
        if element.name == name:
            return bytes([element.kind]) + document[element.start : element.end]
    raise KeyError(name)


def one_of(values: Sequence[bytes]) -> RawBSONDocument:
    """The condition that `_id` is one of these, given as by `value`."""
    array = _document(b"".join(v[:1] + b"%d\0" % place + v[1:] for place, v in enumerate(values)))
    return RawBSONDocument(_document(b"\x03_id\0" + _document(b"\x04$in\0" + array)))


def readable(document: bytes) -> bytes:
    """The document with those old binaries (subtype 2) as generic ones whose inner length is wrong: the server takes
    them, and no driver gives them out.
    """
    found = bytearray(document)
    _mend(found, 0)
    return bytes(found)


def _mend(document: bytearray, start: int) -> None:
    for element in elements(document, start):
        if element.kind in (_DOCUMENT, _ARRAY):
            _mend(document, element.start)
        elif element.kind == _BINARY and document[element.start + 4] == _OLD:
            inner = document[element.start + 5 : element.start + 9]
            if int.from_bytes(inner, "little") != element.end - element.start - 9:
                document[element.start + 4] = _GENERIC


def _document(content: bytes) -> bytes:
    return (len(content) + 5).to_bytes(4, "little") + content + b"\0"


def _end(document: bytes | bytearray, kind: int, start: int) -> int:
    if kind in _FIXED:
        return start + _FIXED[kind]
    if kind == _REGEX:
        return document.index(0, document.index(0, start) + 1) + 1
    if kind not in _BESIDES:
        raise InvalidBSON(f"a value is of the unknown type {kind:#04x}")
    return start + _BESIDES[kind] + int.from_bytes(document[start : start + 4], "little")
