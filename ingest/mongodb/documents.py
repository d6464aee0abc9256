"""BSON documents as the lake keeps them: canonical Extended JSON, whole or by top-level field. Pure.

libbson (bsonjs) writes the JSON; doubles are then given the shortest text that reads back as the same number, as
everywhere else in the lake. https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

import gc
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal
from typing import Any, TypeVar

import bson
import bsonjs
import orjson
import pyarrow as pa
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON

from ingest.change import COLUMNS
from ingest.mongodb import elements

Parsed = dict[str, Any]
_T = TypeVar("_T")

_NUMBERS = ("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal")
_INTS, _LONGS = 1 << 31, 1 << 63
_DECIMAL128 = Context(prec=34, Emax=6144, Emin=-6176)
_DOUBLE = re.compile(r'("\$numberDouble" : ")(-?\d[\d.e+-]*)"')
_ESCAPING = CodecOptions[dict[str, Any]](
    unicode_decode_error_handler="backslashreplace", datetime_conversion=DatetimeConversion.DATETIME_MS
)
_CANONICAL = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, datetime_conversion=DatetimeConversion.DATETIME_MS
)


def uncollected(work: Callable[[], _T]) -> _T:
    """What `work` gives, which parses many documents. Their parts have no cycles, and the collector would look through
    all of them, again and again: a quarter of the time.
    """
    if not gc.isenabled():
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()


def parse(raw: bytes | memoryview) -> Parsed:
    r"""A BSON document as the Python form of its canonical Extended JSON: every value a text, list or mapping.

    Bytes that are no UTF-8, in a string that an old driver wrote, are escaped as in `\xff`, so that other bytes give
    another text. Raises BSONError for what can't be read.
    """
    try:
        text = bsonjs.dumps(bytes(raw), mode=bsonjs.CANONICAL)
    except ValueError:
        text = json_util.dumps(_decoded(bytes(raw)), json_options=_CANONICAL)
    if "$numberDouble" in text:
        text = _DOUBLE.sub(_shortest, text)
    found: Parsed = orjson.loads(text)
    return found


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        return bson.decode(raw, _ESCAPING)
    except InvalidBSON:
        return bson.decode(elements.readable(raw), _ESCAPING)


def _shortest(found: re.Match[str]) -> str:
    try:
        number = float(found[2])
    except ValueError:  # a document that only looks like a number
        return found[0]
    return f'{found[1]}{number!r}"' if math.isfinite(number) else found[0]


def json_text(value: Any) -> str:
    """A parsed value as compact JSON."""
    return orjson.dumps(value).decode()


def row_key(identifier: Any) -> str:
    """The row key of a parsed `_id`: the JSON array of it.

    Numbers that are equal are one `_id` to MongoDB, whatever their types, and a replacement may change the type: so
    equal numbers are spelled alike here, as the first of int, long, double and decimal that can hold them.
    """
    return json_text([_spelled(identifier)])


def _spelled(value: Any) -> Any:
    if isinstance(value, list):
        return [_spelled(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((kind, text),) = value.items()
        if kind in _NUMBERS and isinstance(text, str):
            return _number(kind, text)
    return {name: _spelled(each) for name, each in value.items()}


def _number(kind: str, text: str) -> Parsed:
    if kind == "$numberInt":
        return {kind: text}
    exact = Decimal(float(text)) if kind == "$numberDouble" else Decimal(text)
    if exact.is_nan() or exact.is_infinite():
        return {"$numberDouble": "NaN" if exact.is_nan() else "Infinity" if exact > 0 else "-Infinity"}
    if -_LONGS <= exact < _LONGS and exact == int(exact):
        return {"$numberInt" if -_INTS <= exact < _INTS else "$numberLong": str(int(exact))}
    if Decimal(double := float(text)) == exact:
        return {"$numberDouble": repr(double)}
    return {"$numberDecimal": str(exact.normalize(_DECIMAL128))}


def columns(documents: Iterable[Mapping[str, Any] | None]) -> pa.Array:
    """Parsed documents as `columns` of the raw tables: each top-level field's JSON, null for null.

    None, of a record without a document, gives a null.
    """
    offsets: list[int | None] = []
    names: list[str] = []
    values: list[str | None] = []
    for document in documents:
        if document is None:
            offsets.append(None)
            continue
        offsets.append(len(names))
        # Lists: after any other iterable a list gives its spare room back, and is copied for the next document.
        names += list(document)
        # Texts: bytes of orjson's keep the place of the kilobyte that it wrote them into.
        values += [None if value is None else json_text(value) for value in document.values()]
    offsets.append(len(names))
    entries = pa.array(names, pa.string()), pa.array(values, pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), *entries).cast(COLUMNS)
