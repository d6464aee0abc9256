r"""The row key of a document: the JSON array of its `_id`, read from the bytes of the `_id`. Pure.

Two `_id`s share a row key exactly when the unique index on `_id` takes them for equal: numbers of one value whatever
their types, a Symbol and the string of the same bytes, and documents and arrays of such. All other ids differ. A
value has the text of its canonical Extended JSON, but for:

- a number: the first of int, long, double and decimal that holds it exactly;
- bytes that are not UTF-8, in a string or a name: `{"$bytes":"<hexadecimal>"}`;
- an old binary (subtype 2) whose inner length is wrong: `{"$oldBinary":"<base64>"}`, with all bytes;
- a document that has a name twice, a name that is not UTF-8, or a first name that wrappers begin with (such as
  `$numberInt`): `{"$document":[[name,value],...]}`.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from decimal import Context, Decimal

import orjson
from bson import Decimal128
from bson.errors import InvalidBSON

from ingest.sources.mongodb.bson.elements import Value, elements, is_sound_binary

_INTS, _LONGS = 1 << 31, 1 << 63
_DECIMAL128 = Context(prec=34, Emax=6145, Emin=-6176)
# What the JSON of a value other than a document begins with.
_WRAPPERS = frozenset(
    {
        *("$binary", "$bytes", "$code", "$date", "$dbPointer", "$document", "$maxKey", "$minKey", "$numberDecimal"),
        *("$numberDouble", "$numberInt", "$numberLong", "$oid", "$oldBinary", "$regularExpression", "$symbol"),
        *("$timestamp", "$undefined"),
    }
)


def row_key(identifier: Value) -> str:
    """The row key of an `_id`. Raises InvalidBSON for what is not BSON."""
    return f"[{_text(identifier)}]"


def _text(value: Value) -> str:
    kind, own = value
    if kind not in _TEXTS:
        raise InvalidBSON(f"a value is of the unknown type {kind:#04x}")
    try:
        return _TEXTS[kind](own)
    except (struct.error, IndexError):
        raise InvalidBSON(f"a value of type {kind:#04x} ends too early") from None


def _quoted(raw: bytes) -> str:
    try:
        return orjson.dumps(raw.decode()).decode()
    except UnicodeDecodeError:
        return f'{{"$bytes":"{raw.hex()}"}}'


def _string(own: bytes) -> str:
    if len(own) < 5 or own[-1]:
        raise InvalidBSON("a string has no end")
    return _quoted(own[4:-1])


def _document(own: bytes) -> str:
    fields = [
        (element.name, _quoted(element.name), _text((element.kind, own[element.start : element.end])))
        for element in elements(own)
    ]
    names = [name for name, _, _ in fields]
    is_plain = len({*names}) == len(names) and all(text[0] == '"' for _, text, _ in fields)
    if is_plain and not (names and names[0].decode() in _WRAPPERS):
        return "{" + ",".join(f"{name}:{value}" for _, name, value in fields) + "}"
    return '{"$document":[' + ",".join(f"[{name},{value}]" for _, name, value in fields) + "]}"


def _array(own: bytes) -> str:
    """The names of its elements count for nothing, to the index as well."""
    return "[" + ",".join(_text((element.kind, own[element.start : element.end])) for element in elements(own)) + "]"


def _binary(own: bytes) -> str:
    subtype, content = own[4], own[5:]
    if not is_sound_binary(own):
        return f'{{"$oldBinary":"{b64encode(content).decode()}"}}'
    data = b64encode(content[4:] if subtype == 2 else content).decode()
    return f'{{"$binary":{{"base64":"{data}","subType":"{subtype:02x}"}}}}'


def _pattern(own: bytes) -> str:
    pattern, options, _ = own.split(b"\0")
    return f'{{"$regularExpression":{{"pattern":{_quoted(pattern)},"options":{_quoted(options)}}}}}'


def _pointer(own: bytes) -> str:
    return f'{{"$dbPointer":{{"$ref":{_string(own[:-12])},"$id":{_object_id(own[-12:])}}}}}'


def _scoped_code(own: bytes) -> str:
    end = 8 + int.from_bytes(own[4:8], "little")
    return f'{{"$code":{_string(own[4:end])},"$scope":{_document(own[end:])}}}'


def _boolean(own: bytes) -> str:
    if own[0] > 1:
        raise InvalidBSON("a boolean is neither false nor true")
    return "true" if own[0] else "false"


def _object_id(own: bytes) -> str:
    return f'{{"$oid":"{own.hex()}"}}'


def _integer(own: bytes) -> str:
    number = int.from_bytes(own, "little", signed=True)
    return f'{{"{"$numberInt" if -_INTS <= number < _INTS else "$numberLong"}":"{number}"}}'


def _double(own: bytes) -> str:
    (number,) = struct.unpack("<d", own)
    return _number(Decimal(number))


def _decimal(own: bytes) -> str:
    # A coefficient of more than 34 digits is zero, to PyMongo and to the server.
    return _number(Decimal128.from_bid(own).to_decimal())


def _number(exact: Decimal) -> str:
    """The text of a number that may be held by several types."""
    if exact.is_nan() or exact.is_infinite():
        return f'{{"$numberDouble":"{"NaN" if exact.is_nan() else "Infinity" if exact > 0 else "-Infinity"}"}}'
    if -_LONGS <= exact < _LONGS and exact == int(exact):
        return _integer(int(exact).to_bytes(8, "little", signed=True))
    if Decimal(double := float(exact)) == exact:
        return f'{{"$numberDouble":"{double!r}"}}'
    return f'{{"$numberDecimal":"{exact.normalize(_DECIMAL128)}"}}'


def _date(own: bytes) -> str:
    return f'{{"$date":{{"$numberLong":"{int.from_bytes(own, "little", signed=True)}"}}}}'


def _timestamp(own: bytes) -> str:
    increment, seconds = struct.unpack("<II", own)
    return f'{{"$timestamp":{{"t":{seconds},"i":{increment}}}}}'


_TEXTS: Mapping[int, Callable[[bytes], str]] = {
    0x01: _double,
    0x02: _string,
    0x03: _document,
    0x04: _array,
    0x05: _binary,
    0x06: lambda _: '{"$undefined":true}',
    0x07: _object_id,
    0x08: _boolean,
    0x09: _date,
    0x0A: lambda _: "null",
    0x0B: _pattern,
    0x0C: _pointer,
    0x0D: lambda own: f'{{"$code":{_string(own)}}}',
    0x0E: _string,
    0x0F: _scoped_code,
    0x10: _integer,
    0x11: _timestamp,
    0x12: _integer,
    0x13: _decimal,
    0x7F: lambda _: '{"$maxKey":1}',
    0xFF: lambda _: '{"$minKey":1}',
}
