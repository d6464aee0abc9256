"""`_id`s in groups: MongoDB compares values of one group as equal, and values of different groups as different.

Raw values (type, bytes), as no driver can write all of them.
"""

import struct
from typing import Any

from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp, encode
from bson.datetime_ms import DatetimeMS

from ingest.sources.mongodb.bson import elements
from ingest.sources.mongodb.bson.elements import Value


def value(python_value: Any) -> Value:
    """A Python value as PyMongo encodes it."""
    return elements.value(encode({"_id": python_value}), b"_id")


def text(raw: bytes, kind: int = 0x02) -> Value:
    """A string, or a Symbol (0x0E), of any bytes."""
    return kind, struct.pack("<i", len(raw) + 1) + raw + b"\0"


def symbol(raw: bytes) -> Value:
    """A deprecated Symbol."""
    return text(raw, 0x0E)


def document(*named: tuple[bytes, Value]) -> Value:
    """A document with possibly repeated names."""
    return 0x03, elements.document(named)


def array(*named: tuple[bytes, Value]) -> Value:
    """An array whose elements have any names."""
    return 0x04, elements.document(named)


def old_binary(inner: int, raw: bytes, subtype: int = 2) -> Value:
    """A binary value with an inner length, which may be wrong."""
    return 0x05, struct.pack("<iBi", 4 + len(raw), subtype, inner) + raw


ONE, TWO, THREE = value(1), value(2), value(3)
# Its coefficient has more digits than the format allows, so the value is zero.
OUTSIDE = Decimal128.from_bid(bytes.fromhex("225634b43f264e87c087adbe09edffdf"))
_NAN = 0x01, struct.pack("<Q", 0xFFF8000000000001)
_TENTH = Decimal128("0.1000000000000000055511151231257827")

# A wrapper as it can be stored in an `_id` (a document whose first name begins with a dollar can't be an `_id` itself).
WRAPPERS: list[tuple[Value, Value]] = [
    (document((b"$numberInt", text(b"5"))), value(5)),
    (document((b"$numberLong", text(b"1099511627776"))), value(2**40)),
    (document((b"$numberDouble", text(b"0.5"))), value(0.5)),
    (document((b"$numberDecimal", text(b"0.1"))), value(Decimal128("0.1"))),
    (document((b"$oid", text(b"5f" * 12))), value(ObjectId("5f" * 12))),
    (document((b"$symbol", text(b"s"))), text(b"s")),
    (document((b"$undefined", value(True))), (0x06, b"")),
    (document((b"$minKey", ONE)), value(MinKey())),
    (document((b"$maxKey", ONE)), value(MaxKey())),
    (document((b"$code", text(b"f"))), value(Code("f"))),
    (document((b"$code", text(b"f")), (b"$scope", document())), value(Code("f", {}))),
    (document((b"$date", document((b"$numberLong", text(b"5"))))), value(DatetimeMS(5))),
    (document((b"$date", value(Int64(5)))), value("5")),
    (document((b"$timestamp", value({"t": 1, "i": 2}))), value(Timestamp(1, 2))),
    (document((b"$binary", value({"base64": "YWJj", "subType": "00"}))), value(Binary(b"abc", 0))),
    (document((b"$regularExpression", value({"pattern": "a", "options": "im"}))), (0x0B, b"a\0im\0")),
    (document((b"$bytes", text(b"61ff"))), text(b"a\xff")),
    (document((b"$oldBinary", text(b"YwAAAGFiYw=="))), old_binary(99, b"abc")),
    (
        document((b"$document", value([["a", 1], ["a", 2]]))),
        document((b"a", ONE), (b"a", TWO)),
    ),
]

GROUPS: list[list[Value]] = [
    [
        value(5),
        value(Int64(5)),
        value(5.0),
        value(Decimal128("5")),
        value(Decimal128("5.00")),
        value(Decimal128("50E-1")),
    ],
    [value(0), value(-0.0), value(Decimal128("-0E+5")), value(OUTSIDE)],
    [value(float("nan")), _NAN, value(Decimal128("NaN")), value(Decimal128("-NaN")), value(Decimal128("sNaN"))],
    [value(float("inf")), value(Decimal128("Infinity"))],
    [value(float("-inf"))],
    [value(0.1)],
    [value(Decimal128("0.1")), value(Decimal128("0.10"))],
    [value(_TENTH)],
    [value(0.5), value(Decimal128("0.50"))],
    [value(2.0**53), value(Int64(2**53))],
    [value(Int64(2**53 + 1)), value(Decimal128(str(2**53 + 1)))],
    [value(Int64(2**63 - 1))],
    [value(2.0**63), value(Decimal128(str(2**63)))],
    [value(1e22), value(Decimal128("1E+22"))],
    [value(1e300)],
    [value(Decimal128("1E+300"))],
    [value(5e-324)],
    [value(Decimal128("1E+6000")), value(Decimal128("10E+5999"))],
    [value(Decimal128("1E-6176"))],
    [text(b"x"), symbol(b"x")],
    [symbol(b"only"), text(b"only")],
    [text(b"5")],
    [text(b"")],
    [text(b"a")],
    [text(b"a\0b")],
    [text(b"a\0")],
    [text(b'["a"]')],
    [text(b"a\xff"), symbol(b"a\xff")],
    [text(b"a\xfe")],
    [text(b"a\\xff")],
    [text("ÿ".encode())],
    [text("\ufffd".encode())],
    [text(b"\xed\xa0\x80")],
    [text(b"\xc0\x80")],
    [value("e\u0301")],
    [value("\u00e9")],
    [document((b"a", ONE), (b"a", TWO))],
    [document((b"a", THREE), (b"a", TWO))],
    [document((b"a", TWO)), document((b"a", value(2.0)))],
    [document((b"a", symbol(b"s"))), document((b"a", text(b"s")))],
    [document()],
    [document((b"", ONE))],
    [document((b"a", document()))],
    [document((b"a", array()))],
    [document((b"a", ONE), (b"b", TWO))],
    [document((b"b", TWO), (b"a", ONE))],
    [document((b"a.b", ONE))],
    [document((b"a", document((b"b", ONE))))],
    [document((b"a\xff", ONE))],
    [document((b"a\\xff", ONE))],
    [document((b"a", array((b"0", ONE)))), document((b"a", array((b"7", value(1.0)))))],
    [document((b"a", array((b"0", array((b"0", ONE))))))],
    [document((b"a", document((b"0", ONE))))],
    [document((b"a", (0x0A, b"")))],
    [document((b"a", (0x0B, b"a\0mi\0")))],
    [document((b"a", (0x0B, b"a\xff\0\0")))],
    [document((b"a", (0x0B, b"a\\xff\0\0")))],
    [(0x0A, b"")],
    [value(True)],
    [value(False)],
    [value(DatetimeMS(5))],
    [value(DatetimeMS(2**62))],
    [value(DatetimeMS(-(2**62)))],
    [value(Timestamp(0, 5))],
    [value(Timestamp(2**32 - 1, 2**32 - 1))],
    [value(ObjectId("5f" * 12))],
    [value("5f" * 12)],
    [value(DBRef("c", 1)), value(DBRef("c", 1.0))],
    [value(DBRef("c", ObjectId(bytes(12))))],
    [value(DBRef("c", 1, "d"))],
    [(0x0C, text(b"c")[1] + bytes(12))],
    [value(Code("f"))],
    [value(Code("f", {}))],
    [value(Code("f", {"x": 1})), value(Code("f", {"x": 1.0}))],
    [value("f")],
    [value(Binary(b"abc", 0))],
    [value(Binary(b"abc", 2))],
    [value(Binary(b"abc", 4))],
    [old_binary(99, b"abc")],
    [old_binary(99, b"abc", 0)],
    [old_binary(4, b"abc")],
    [(0x05, b"\3\0\0\0\2abc")],
    [value(MinKey())],
    [value(MaxKey())],
    *([document((b"w", each))] for pair in WRAPPERS for each in pair),
]
