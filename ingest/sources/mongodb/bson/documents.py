"""BSON documents as the lake keeps them: canonical Extended JSON, whole or by top-level field. Pure.

`parse` reads one, however odd: libbson (bsonjs) writes the JSON; doubles are then given the shortest text that reads
back as the same number, as everywhere else in the lake. `DocumentBatch` reads many at once, by `vector_walk` and
`extended_json`, and those that these leave out by `parse`. https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

import gc
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import bson
import bsonjs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON

from ingest.common.records import COLUMNS
from ingest.sources.mongodb.bson import document_keys, elements, extended_json
from ingest.sources.mongodb.bson.vector_walk import I64, LEAST, BsonBuffer, walk

Parsed = dict[str, Any]

# Types whose values are row keys as they are: string, ObjectId, boolean, int.
_SPELLED = np.zeros(256, np.bool_)
_SPELLED[[0x02, 0x07, 0x08, 0x10]] = True
_DOUBLE = re.compile(r'("\$numberDouble" : ")(-?\d[\d.e+-]*)"')
_ESCAPING = CodecOptions[dict[str, Any]](
    unicode_decode_error_handler="backslashreplace", datetime_conversion=DatetimeConversion.DATETIME_MS
)
_CANONICAL = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, datetime_conversion=DatetimeConversion.DATETIME_MS
)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector while many documents are parsed.

    Their parts have no cycles, and the collector would scan all of them repeatedly: a quarter of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse(raw: bytes | memoryview) -> Parsed:
    r"""A BSON document as Python values of its canonical Extended JSON: strings, lists and dictionaries.

    Bytes that are no UTF-8, in a string that an old driver wrote, are escaped as in `\xff`, so that other bytes give
    another text. Raises BSONError for what can't be read.
    """
    document = bytes(raw)
    try:
        return _by_libbson(document)
    except ValueError:
        fields: Parsed = orjson.loads(json_util.dumps(_decoded(document), json_options=_CANONICAL))
    # To PyMongo a symbol is a string: what it reads are only the fields that libbson can't.
    for name, value in elements.fields(document).items():
        with suppress(ValueError):
            fields |= _by_libbson(elements.document([(name, value)]))
    return fields


def _by_libbson(document: bytes) -> Parsed:
    text = bsonjs.dumps(document, mode=bsonjs.CANONICAL)
    if "$numberDouble" in text:
        text = _DOUBLE.sub(_shortest, text)
    fields: Parsed = orjson.loads(text)
    return fields


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        return bson.decode(raw, _ESCAPING)
    except InvalidBSON:
        return bson.decode(elements.repair_legacy_binaries(raw), _ESCAPING)


def _shortest(match: re.Match[str]) -> str:
    try:
        number = float(match[2])
    except ValueError:  # a document that only looks like a number
        return match[0]
    return f'{match[1]}{number!r}"' if math.isfinite(number) else match[0]


def json_text(value: Any) -> str:
    """A parsed value as compact JSON."""
    return orjson.dumps(value).decode()


class DocumentBatch:
    """A batch of documents of less than 2 GiB. Raises BSONError if one can't be decoded."""

    def __init__(self, raw: Sequence[bytes]) -> None:
        self._raw = raw
        self._owner = self._kind = np.empty(0, np.int64)
        self._names = self._texts = pa.array([], pa.string())
        self._whole = np.zeros(len(raw), np.bool_)
        with gc_paused():
            if len(raw) >= LEAST:
                self._read(raw)
            self._parsed = [parse(raw[place]) for place in np.flatnonzero(~self._whole).tolist()]

    def _read(self, raw: Sequence[bytes]) -> None:
        """Decode by vectors the documents that this supports."""
        page = BsonBuffer(raw)
        level = walk(page, page.start, page.end)
        self._texts, sound = extended_json.values(page, level, nulls=True)
        self._names, sound_names = extended_json.names(page, level)
        self._owner, self._kind = level.owner, level.kind
        self._whole = level.whole
        if not (sound & sound_names).all():
            self._whole[level.owner[~(sound & sound_names)]] = False
            kept = np.flatnonzero(self._whole[level.owner])
            self._owner, self._kind = level.owner[kept], level.kind[kept]
            self._names, self._texts = (array.take(pa.array(kept)) for array in (self._names, self._texts))

    def row_keys(self) -> pa.Array:
        """The row key of each document's `_id`: see `document_keys`."""
        others = [self._row_key(place) for place in np.flatnonzero(~self._whole).tolist()]
        return self._in_order(self._row_keys, pa.array(others, pa.string()))

    def _row_key(self, place: int) -> str:
        return document_keys.row_key(elements.value(self._raw[place], b"_id"))

    def _row_keys(self) -> pa.Array:
        id_places = np.flatnonzero(pc.equal(self._names, "_id").to_numpy(zero_copy_only=False))
        plain = _SPELLED[self._kind[id_places]]
        keys = pc.binary_join_element_wise("[", self._texts.take(pa.array(id_places)), "]", "")
        if plain.all():
            return keys
        others = [self._row_key(place) for place in self._owner[id_places[~plain]].tolist()]
        return pc.replace_with_mask(keys, pa.array(~plain), pa.array(others, pa.string()))

    def columns(self) -> pa.Array:
        """`columns` of the raw tables: each top-level field's JSON, null for null."""
        return self._in_order(self._columns, _columns(self._parsed))

    def _columns(self) -> pa.Array:
        offsets = np.searchsorted(self._owner, np.append(np.flatnonzero(self._whole), len(self._whole)))
        return _map(offsets, self._names, self._texts)

    def _in_order(self, read: Callable[[], pa.Array], parsed: pa.Array) -> pa.Array:
        """Merge the results of `read` for vector-decoded documents with `parsed` for the others, in document order."""
        if len(parsed) == len(self._whole):
            return parsed
        if not len(parsed):
            return read()
        place = np.argsort(np.argsort(~self._whole, kind="stable"))
        return pa.concat_arrays([read(), parsed]).take(pa.array(place))


def _columns(parsed: Sequence[Mapping[str, Any]]) -> pa.Array:
    names: list[str] = []
    values: list[str | None] = []
    offsets = [0]
    for document in parsed:
        names += list(document)
        values += [None if value is None else json_text(value) for value in document.values()]
        offsets.append(len(names))
    return _map(np.array(offsets), pa.array(names, pa.string()), pa.array(values, pa.string()))


def _map(offsets: I64, names: pa.Array, values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, values).cast(COLUMNS)
