r"""Decodes rows of `COPY ... TO STDOUT (FORMAT text)`: the columns as maps, and the key's values. Pure, vectorised.

Tabs and newlines in values are sent escaped, so an unescaped one ends a value. Only batches with a backslash cost more:
`\N` alone is NULL, `\\N` is the text `\N`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.common.errors import Failure
from ingest.sources.postgres.pgoutput.arrow_columns import build_maps, repeat, to_strings
from ingest.sources.postgres.pgoutput.payload_buffer import I32, I64, U8, Mask

# Small enough for the CPU cache, and for 32-bit offsets: an empty value takes one byte here, its name in the map up to
# 63 bytes.
BATCH_BYTES = 4 * 2**20

_TAB, _NEWLINE, _BACKSLASH, _NULL = b"\t\n\\N"
_DELIMITER = np.zeros(256, np.bool_)
_DELIMITER[[_TAB, _NEWLINE]] = True
# The character that an escape sequence stands for; for most, the character itself.
_MEANING = np.arange(256, dtype=np.uint8)
_MEANING[list(b"bfnrtv")] = list(b"\b\f\n\r\t\v")


@dataclass(frozen=True)
class Rows:
    """A batch of rows. columns: a map per row; keys: a string array per key column, in order."""

    count: int
    columns: pa.Array
    keys: list[pa.Array]


def decode(
    payloads: Iterable[bytes | memoryview],
    names: Sequence[str],
    keys: Sequence[str] = (),
    source: str = "COPY",
) -> Iterator[Rows]:
    """The rows in `payloads`, in batches of about BATCH_BYTES (one row may be more).

    payloads: complete rows, any number in each (libpq returns one). names: the columns in the order of the COPY;
    keys: the key columns in key order; source: names the source in errors. Without rows there is no batch. Raises
    `Failure` for rows of another width, and for text that is not UTF-8.
    """
    places = [names.index(key) for key in keys]
    for batch in _batches(payloads):
        values, rows = _values(batch, len(names), source)
        columns = build_maps(np.full(rows, len(names)), repeat(names, rows), values)
        key_values = [values.take(pa.array(np.arange(rows) * len(names) + p)) for p in places]
        yield Rows(rows, columns, key_values)


def _batches(payloads: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Whole rows, as many as fit."""
    pending: list[bytes | memoryview] = []
    size = 0
    for payload in payloads:
        if size and size + len(payload) > BATCH_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
        if len(payload) > BATCH_BYTES:
            yield from _parts(bytes(payload))
        else:
            pending.append(payload)
            size += len(payload)
    if size:
        yield b"".join(pending)


def _parts(data: bytes) -> Iterator[bytes]:
    """Splits rows into parts of at most BATCH_BYTES; a larger row is a part of its own."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + BATCH_BYTES) + 1
        end = end or data.find(b"\n", start + BATCH_BYTES) + 1 or len(data)
        yield data[start:end]
        start = end


def _values(batch: bytes, width: int, source: str) -> tuple[pa.Array, int]:
    """All values of a batch as strings, row by row, and the number of rows."""
    data = np.frombuffer(batch, np.uint8)
    newline = data == _NEWLINE
    end = np.flatnonzero((data == _TAB) | newline)
    newline = np.flatnonzero(newline)
    if not _fits(data, newline, end, width):
        raise _damaged(source)
    if not width:
        return pa.array([], pa.string()), len(newline)
    backslash = np.flatnonzero(data == _BACKSLASH)
    is_null = _are_nulls(data, backslash)
    null, escape = backslash[is_null], _escapes(backslash[~is_null])
    keep = np.ones(len(data), np.bool_)
    keep[end] = False
    if not keep[escape + 1].all():
        raise _damaged(source)
    # A value ends at its delimiter's offset, less the number of bytes removed before it.
    offsets = np.zeros(len(end) + 1, np.int32)
    offsets[1:] = end - np.arange(len(end))
    valid = None
    if null.size:
        keep[null] = keep[null + 1] = False
        valid = np.ones(len(end), np.bool_)
        valid[np.searchsorted(end, null)] = False
        offsets[1:] -= 2 * np.cumsum(~valid, dtype=np.int32)
    if escape.size:
        keep[escape] = False
        offsets[1:] -= np.searchsorted(escape, end).astype(np.int32)
        data = data.copy()
        data[escape + 1] = _MEANING[data[escape + 1]]
    return _strings(offsets, _select(data, keep), valid, source), len(newline)


def _select(data: U8, keep: Mask) -> pa.Buffer:
    """The bytes to keep. Arrow takes less than half the time of numpy."""
    bits = pa.py_buffer(np.packbits(keep, bitorder="little"))
    selected = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)]).filter(
        pa.Array.from_buffers(pa.bool_(), len(data), [None, bits])
    )
    return selected.buffers()[1]


def _fits(data: U8, newline: I64, end: I64, width: int) -> bool:
    """Whether every row is complete and has `width` values."""
    if not width:
        return len(newline) == len(data)
    last = end[width - 1 :: width]
    return bool(data[-1] == _NEWLINE) and np.array_equal(last, newline) and len(end) % width == 0


def _are_nulls(data: U8, backslash: I64) -> Mask:
    """Which of the backslashes begin a NULL: before an N, alone between delimiters."""
    # Index -1, before the first byte, wraps around to the newline of the last row.
    before, after = data[backslash - 1], data.take(backslash + 2, mode="clip")
    null: Mask = _DELIMITER[before] & (data[backslash + 1] == _NULL) & _DELIMITER[after]
    return null


def _escapes(backslash: I64) -> I64:
    """The backslashes that escape the next character; in a run of backslashes, every second one is escaped itself."""
    place = np.arange(len(backslash))
    first = np.diff(backslash, prepend=-2) != 1
    within = place - np.maximum.accumulate(np.where(first, place, 0))
    escapes: I64 = backslash[within % 2 == 0]
    return escapes


def _strings(offsets: I32, data: pa.Buffer, valid: Mask | None, source: str) -> pa.Array:
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets), data]
    return to_strings(pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers), source)


def _damaged(source: str) -> Failure:
    return Failure(
        "COPY returned rows that do not have the requested columns",
        source,
        "Read the rows again; if the error returns, the list of columns and the COPY command differ",
    )
