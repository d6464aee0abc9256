"""Elements of BSON documents as raw bytes, for values that no decoder accepts or reproduces exactly. Pure.

https://bsonspec.org/spec.html
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument

# A value: its type, and its own bytes.
Value: TypeAlias = tuple[int, bytes]
Fields: TypeAlias = dict[bytes, Value]

NULL = 0x0A
_DOCUMENT, _ARRAY, _BINARY, REGEX, _POINTER, _SCOPED_CODE = 0x03, 0x04, 0x05, 0x0B, 0x0C, 0x0F
# The sizes of types with a fixed size; the bytes of other types in addition to the length that they begin with. A
# regular expression is two strings, each up to its zero byte.
FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
PREFIXED = {0x02: 4, _DOCUMENT: 0, _ARRAY: 0, _BINARY: 5, _POINTER: 16, 0x0D: 4, 0x0E: 4, _SCOPED_CODE: 0}
_GENERIC, OLD_BINARY = 0x00, 0x02
_SIZE = Struct("<i")


@dataclass(frozen=True)
class Element:
    """An element of a document; its value is at `start:end` of the document."""

    kind: int
    name: bytes
    start: int
    end: int


def elements(document: bytes | bytearray, start: int = 0) -> Iterator[Element]:
    """The elements of the document that begins at `start`, in order.

    Raises InvalidBSON for a type that there isn't, and a document that has no end.
    """
    offset = start + 4
    try:
        while kind := document[offset]:
            name_end = document.index(0, offset + 1)
            element = Element(
                kind, bytes(document[offset + 1 : name_end]), name_end + 1, _end(document, kind, name_end + 1)
            )
            yield element
            offset = element.end
    except (IndexError, ValueError):
        raise InvalidBSON("a document ends too early") from None


def fields(document: bytes) -> Fields:
    """A document's values by name; of a duplicate name the last one."""
    return {element.name: (element.kind, document[element.start : element.end]) for element in elements(document)}


def members(array: bytes) -> list[bytes]:
    """The documents of an array that has only documents."""
    values = []
    offset = 4
    while array[offset] == _DOCUMENT:
        start = array.index(0, offset + 1) + 1
        offset = start + _SIZE.unpack_from(array, start)[0]
        values.append(array[start:offset])
    return values


def value(document: bytes, name: bytes) -> Value:
    """The value of the first element with a name. Raises KeyError."""
    for element in elements(document):
        if element.name == name:
            return element.kind, document[element.start : element.end]
    raise KeyError(name)


def document(named_values: Iterable[tuple[bytes, Value]]) -> bytes:
    """A document of these values."""
    content = b"".join(b"%c%b\0%b" % (kind, name, own) for name, (kind, own) in named_values)
    return (len(content) + 5).to_bytes(4, "little") + content + b"\0"


def array(values: Iterable[Value]) -> bytes:
    """These values as an array."""
    return document((b"%d" % place, value) for place, value in enumerate(values))


def one_of(values: Iterable[Value]) -> RawBSONDocument:
    """The filter that `_id` is one of these values."""
    return RawBSONDocument(document([(b"_id", (_DOCUMENT, document([(b"$in", (_ARRAY, array(values)))])))]))


def repair_legacy_binaries(document: bytes) -> bytes:
    """The document with those old binaries (subtype 2) as generic ones whose inner length is wrong: the server takes
    them, and no driver gives them out.
    """
    repaired = bytearray(document)
    _mend(repaired, 0)
    return bytes(repaired)


def _mend(document: bytearray, start: int) -> None:
    for element in elements(document, start):
        if element.kind in (_DOCUMENT, _ARRAY):
            _mend(document, element.start)
        elif element.kind == _BINARY and not is_sound_binary(document[element.start : element.end]):
            document[element.start + 4] = _GENERIC


def is_sound_binary(own: bytes | bytearray) -> bool:
    """Whether the bytes of a binary value have the inner length that an old one (subtype 2) repeats."""
    return own[4] != OLD_BINARY or (len(own) >= 9 and int.from_bytes(own[5:9], "little") == len(own) - 9)


def _end(document: bytes | bytearray, kind: int, start: int) -> int:
    if kind in FIXED:
        return start + FIXED[kind]
    if kind == REGEX:
        return document.index(0, document.index(0, start) + 1) + 1
    if kind not in PREFIXED:
        raise InvalidBSON(f"a value is of the unknown type {kind:#04x}")
    return start + PREFIXED[kind] + int.from_bytes(document[start : start + 4], "little")
