"""BSON elements by their bytes, compared with PyMongo."""

from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, encode
from bson.datetime_ms import DatetimeMS

from ingest.sources.mongodb.bson import documents, elements

# One element of each type; DBPointer, undefined and symbol are written by hand.
EVERYTHING: dict[str, Any] = {
    "double": 1.5,
    "string": "ä\0b",
    "document": {"a": {"b": 1}},
    "array": [1, [2, "x"]],
    "binary": Binary(b"abc", 6),
    "id": ObjectId(),
    "true": True,
    "date": DatetimeMS(-(2**62)),
    "null": None,
    "regex": Regex("a.*b", "im"),
    "code": Code("f()"),
    "scoped": Code("f()", {"x": 1}),
    "int": 7,
    "timestamp": Timestamp(1, 2),
    "long": Int64(2**40),
    "decimal": Decimal128("1.10"),
    "min": MinKey(),
    "max": MaxKey(),
    "": DBRef("c", 1),
}
_OLD_TYPES = b"\x06undefined\0" + b"\x0epointless\0\x02\0\0\0s\0" + b"\x0cpointer\0\x02\0\0\0c\0" + bytes(12)


def _with(document: bytes, more: bytes) -> bytes:
    content = document[4:-1] + more
    return (len(content) + 5).to_bytes(4, "little") + content + b"\0"


def test_elements_are_contiguous_and_complete() -> None:
    document = _with(encode(EVERYTHING), _OLD_TYPES)
    actual = list(elements.elements(document))
    assert [element.name.decode() for element in actual] == [*EVERYTHING, "undefined", "pointless", "pointer"]
    assert actual[-1].end == len(document) - 1
    rest = b"".join(bytes([e.kind]) + e.name + b"\0" + document[e.start : e.end] for e in actual)
    assert rest == document[4:-1]


def test_a_query_by_id_has_the_original_bytes() -> None:
    odd = encode({"_id": "abcd"}).replace(b"abcd", b"a\xffcd")
    twice = _with(encode({}), b"\x03_id\0" + _with(encode({"a": 1}), b"\x10a\0\x02\0\0\0"))
    documents = [odd, twice, *(encode({"k": 1, "_id": value}) for value in EVERYTHING.values())]
    values = [elements.value(raw_document, b"_id") for raw_document in documents]
    _, condition = elements.value(bytes(elements.one_of(values).raw), b"_id")
    _, array = elements.value(condition, b"$in")
    assert elements.fields(array) == {str(place).encode(): value for place, value in enumerate(values)}
    with pytest.raises(KeyError):
        elements.value(odd, b"k")


def test_an_old_binary_with_a_wrong_length_is_read_as_a_generic_one() -> None:
    broken = b"\x05x\0\x07\0\0\0\x02\x63\0\0\0abc"
    document = _with(encode({"a": 1}), b"\x04list\0" + _with(encode({}), broken) + b"\x05y\0\x06\0\0\0\x02\x02\0\0\0ok")
    with pytest.raises(bson.InvalidBSON):
        bson.decode(document)
    kept = {"$binary": {"base64": "YwAAAGFiYw==", "subType": "00"}}
    assert documents.parse(document) == {
        "a": {"$numberInt": "1"},
        "list": [kept],
        "y": {"$binary": {"base64": "b2s=", "subType": "02"}},
    }
