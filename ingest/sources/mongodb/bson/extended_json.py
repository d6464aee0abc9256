"""Values of BSON documents as compact canonical Extended JSON, many at once, by numpy and Arrow. Pure.

The texts equal those of the slower `documents.parse`. Values that only `parse` can read, or reads differently (bytes
that are not UTF-8, duplicate names, names that begin with a dollar, deprecated types), are reported to the caller.
https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import bsonjs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.mongodb.bson import elements
from ingest.sources.mongodb.bson.vector_walk import I64, BsonBuffer, ElementLevel, Mask, walk

# Texts, and which of them are right.
Texts: TypeAlias = tuple[pa.Array, Mask]

_ESCAPED = np.zeros(256, np.bool_)
_ESCAPED[[*range(32), *b'"\\']] = True
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)
# Between these Arrow writes a double as Python does, by its shortest text, but for the `.0` of whole numbers.
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e10


@dataclass(frozen=True)
class ByteSpans:
    """The bytes of some values of one type, which lie at `start:end` of the page."""

    page: BsonBuffer
    start: I64
    end: I64


_Writer: TypeAlias = Callable[[ByteSpans], Texts]


def values(page: BsonBuffer, level: ElementLevel, *, nulls: bool = False) -> Texts:
    """The values of elements. nulls: null for those that are, not its JSON."""
    sound = np.ones(len(level.kind), np.bool_)
    parts, places = [pa.array([], pa.string())], [np.empty(0, np.int64)]
    for kind in np.flatnonzero(np.bincount(level.kind)).tolist():
        indices = np.flatnonzero(level.kind == kind)
        write = _WRITERS.get(kind, _unknown)
        texts, sound[indices] = write(ByteSpans(page, level.start[indices], level.end[indices]))
        parts.append(texts)
        places.append(indices)
    order = np.empty(len(level.kind), np.int64)
    order[np.concatenate(places)] = np.arange(len(order))
    return pa.concat_arrays(parts).take(pa.array(order, mask=level.kind == elements.NULL if nulls else None)), sound


def names(page: BsonBuffer, level: ElementLevel) -> Texts:
    """The names of elements, as they are; wrong are those of documents that have one of them twice."""
    texts, sound = _strings(page, level.name, level.start - 1)
    sound &= page.u8[level.name] != ord("$")
    codes = texts.dictionary_encode().indices.to_numpy().astype(np.int64)
    pairs = level.owner * (int(codes.max(initial=0)) + 1) + codes
    order = np.argsort(pairs, kind="stable")
    sound[order[1:][np.diff(pairs[order]) == 0]] = False
    return texts, sound


def quoted(texts: pa.Array) -> pa.Array:
    """Strings as JSON has them."""
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    data = texts.buffers()[2]
    escaped = _ESCAPED[np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]] if data else np.empty(0, np.bool_)
    plain = _around('"', texts, '"')
    if not escaped.any():
        return plain
    before = np.concatenate([[0], np.cumsum(escaped)])
    odd = np.diff(before[bounds - bounds[0]]) > 0
    return _replaced(plain, odd, [orjson.dumps(text).decode() for text in texts.filter(pa.array(odd)).to_pylist()])


def _strings(page: BsonBuffer, start: I64, end: I64) -> Texts:
    """The bytes at `start:end`, which ascend, as strings; wrong where they are no UTF-8."""
    # As one run of numbers the bounds are the offsets of an array whose even elements are wanted.
    offsets = np.column_stack([start, end]).astype(np.int32).ravel()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(page.buffer)]
    laid_over = pa.Array.from_buffers(pa.binary(), max(len(offsets) - 1, 0), buffers)
    quoted = laid_over.take(pa.array(np.arange(0, len(offsets), 2)))
    try:
        return quoted.cast(pa.string()), np.ones(len(start), np.bool_)
    except pa.ArrowInvalid:
        sound = np.array([_is_utf8(text) for text in quoted.to_pylist()])
        return pc.if_else(pa.array(sound), quoted, b"").cast(pa.string()), sound


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _around(before: str, texts: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _replaced(texts: pa.Array, which: Mask, by: list[str]) -> pa.Array:
    return pc.replace_with_mask(texts, pa.array(which), pa.array(by, pa.string()))


def _all(texts: pa.Array) -> Texts:
    return texts, np.ones(len(texts), np.bool_)


def _unknown(spans: ByteSpans) -> Texts:
    return pa.repeat("", len(spans.start)), np.zeros(len(spans.start), np.bool_)


def _null(spans: ByteSpans) -> Texts:
    return _all(pa.repeat("null", len(spans.start)))


def _boolean(spans: ByteSpans) -> Texts:
    value = spans.page.u8[spans.start]
    return pa.array(np.where(value == 1, "true", "false"), pa.string()), value < 2


def _int(spans: ByteSpans) -> Texts:
    return _all(_around('{"$numberInt":"', pa.array(spans.page.i32[spans.start]).cast(pa.string()), '"}'))


def _long(spans: ByteSpans) -> Texts:
    return _all(_around('{"$numberLong":"', pa.array(spans.page.i64[spans.start]).cast(pa.string()), '"}'))


def _date(spans: ByteSpans) -> Texts:
    return _all(_around('{"$date":{"$numberLong":"', pa.array(spans.page.i64[spans.start]).cast(pa.string()), '"}}'))


def _double(spans: ByteSpans) -> Texts:
    number = spans.page.f64[spans.start]
    size = np.abs(number)
    plain = (size >= _PLAIN_FROM) & (size < _PLAIN_BELOW) | (size == 0)
    shown = np.where(plain, number, 0)
    point = pa.array(np.where(shown == np.trunc(shown), ".0", ""), pa.string())
    texts = pc.binary_join_element_wise(pa.array(shown).cast(pa.string()), point, "")
    if not plain.all():
        texts = _replaced(texts, ~plain, [_shortest(value) for value in number[~plain].tolist()])
    return _all(_around('{"$numberDouble":"', texts, '"}'))


def _shortest(number: float) -> str:
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _timestamp(spans: ByteSpans) -> Texts:
    seconds, increment = (pa.array(spans.page.u32[place]).cast(pa.string()) for place in (spans.start + 4, spans.start))
    return _all(pc.binary_join_element_wise('{"$timestamp":{"t":', seconds, ',"i":', increment, "}}", ""))


def _object_id(spans: ByteSpans) -> Texts:
    digits = _HEX[spans.page.u8[spans.start[:, None] + np.arange(12)]]
    offsets = np.arange(0, 24 * len(spans.start) + 1, 24, dtype=np.int32)
    texts = pa.StringArray.from_buffers(len(spans.start), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))
    return _all(_around('{"$oid":"', texts, '"}'))


def _string(spans: ByteSpans) -> Texts:
    closed = (spans.end - spans.start > 4) & (spans.page.u8[spans.end - 1] == 0)
    texts, sound = _strings(spans.page, spans.start + 4, np.where(closed, spans.end - 1, spans.start + 4))
    return quoted(texts), sound & closed


def _document(spans: ByteSpans) -> Texts:
    level = walk(spans.page, spans.start, spans.end)
    texts, sound = values(spans.page, level)
    keys, sound_names = names(spans.page, level)
    return _joined("{", pc.binary_join_element_wise(quoted(keys), texts, ":"), level, sound & sound_names, "}")


def _array(spans: ByteSpans) -> Texts:
    level = walk(spans.page, spans.start, spans.end)
    texts, sound = values(spans.page, level)
    return _joined("[", texts, level, sound, "]")


def _joined(before: str, parts: pa.Array, level: ElementLevel, sound: Mask, after: str) -> Texts:
    """The parts of each document, one after the other."""
    offsets = np.searchsorted(level.owner, np.arange(len(level.whole) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), parts)
    right = level.whole.copy()
    right[level.owner[~sound]] = False
    return _around(before, pc.binary_join(lists, ","), after), right


def _binary(spans: ByteSpans) -> Texts:
    subtypes = spans.page.u8[spans.start + 4]
    buffer = spans.page.buffer
    values = [
        f'{{"$binary":{{"base64":"{b64encode(buffer[start + 5 : end]).decode()}","subType":"{subtype:02x}"}}}}'
        for start, end, subtype in zip(spans.start.tolist(), spans.end.tolist(), subtypes.tolist(), strict=True)
    ]
    return pa.array(values, pa.string()), subtypes != elements.OLD_BINARY


def _by_libbson(kind: int) -> _Writer:
    """Of what is seldom, or takes too much to write."""

    def write(spans: ByteSpans) -> Texts:
        values = [(kind, spans.page.buffer[a:b]) for a, b in zip(spans.start.tolist(), spans.end.tolist(), strict=True)]
        try:
            parsed = orjson.loads(bsonjs.dumps(elements.array(values), mode=bsonjs.CANONICAL))
        except ValueError:
            return _unknown(spans)
        return _all(pa.array([orjson.dumps(value).decode() for value in parsed.values()], pa.string()))

    return write


_WRITERS: Mapping[int, _Writer] = {
    0x01: _double,
    0x02: _string,
    0x03: _document,
    0x04: _array,
    0x05: _binary,
    0x07: _object_id,
    0x08: _boolean,
    0x09: _date,
    elements.NULL: _null,
    0x0B: _by_libbson(0x0B),
    0x10: _int,
    0x11: _timestamp,
    0x12: _long,
    0x13: _by_libbson(0x13),
    0x7F: _by_libbson(0x7F),
    0xFF: _by_libbson(0xFF),
}
