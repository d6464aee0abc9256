"""Walks many tuples of pgoutput at once: a vector of offsets advances over them column by column.

Tuples of one width are walked together, so each column costs a few numpy calls instead of a loop over rows. The result
is the bounds of each value, in the buffer's order. Arrow creates strings only for the values that are requested, from
an array over the same buffer.
"""

import numpy as np
import pyarrow as pa

from ingest.sources.postgres.pgoutput.arrow_columns import to_strings
from ingest.sources.postgres.pgoutput.payload_buffer import I32, I64, U8, PayloadBuffer

NULL, TEXT, UNCHANGED, BINARY = b"ntub"
_KNOWN = np.zeros(256, dtype=np.bool_)
_KNOWN[[NULL, TEXT, UNCHANGED]] = True


class TupleValues:
    """The values of some tuples. kind: `t`, `n` or `u`; bounds: start and end offset of each value."""

    def __init__(self, payloads: PayloadBuffer, count: int) -> None:
        self._wire = payloads
        self.kind: U8 = np.empty(count, np.uint8)
        # Flattened, the bounds are the offsets of an Arrow array whose even elements are the values.
        self._offsets: I32 = np.zeros(2 * count + 1, np.int32)
        self.bounds: I32 = self._offsets[:-1].reshape(count, 2)

    def texts(self, chosen: I64) -> pa.Array:
        """The values with the indexes `chosen` as strings; null for NULL."""
        nulls = self.kind[chosen] == NULL
        indices = pa.array(chosen * 2, mask=nulls if nulls.any() else None)
        return to_strings(self._array().take(indices), self._wire.source)

    def _array(self) -> pa.Array:
        self._offsets[-1] = self._offsets[-2:].max()
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._wire.buffer)]
        return pa.Array.from_buffers(pa.binary(), len(self._offsets) - 1, buffers)


def expand_ranges(first: I64, count: I64) -> I64:
    """`first[i], first[i] + 1, ...`, `count[i]` numbers for each i."""
    end = np.cumsum(count)
    total = int(end[-1]) if len(end) else 0
    return np.repeat(first - (end - count), count) + np.arange(total)


def walk_tuples(payloads: PayloadBuffer, offset: I64, width: I64, slot: I64, values: TupleValues) -> I64:
    """Walk the tuples that begin at `offset` and have `width` columns; the end offset of each.

    Value c of tuple i is stored at `values[slot[i] + c]`. Raises `Failure` for a tuple of another width, one that ends
    after the buffer, and binary values.
    """
    end = np.empty_like(offset)
    for columns in np.flatnonzero(np.bincount(width)):
        members = np.flatnonzero(width == columns)
        end[members] = _walk_width(payloads, offset[members], int(columns), slot[members], values)
    return end


def _walk_width(payloads: PayloadBuffer, offset: I64, width: int, slot: I64, values: TupleValues) -> I64:
    wrong = payloads.u16(offset) != width
    if wrong.any():
        raise payloads.truncated_error(int(offset[wrong][0]))
    kind, bounds, together = _output_arrays(width, slot, values)
    offset = offset + 2
    for column in range(width):
        here, length, value = payloads.u8(offset), payloads.u32(offset + 1), offset + 5
        valued = here == TEXT
        if not valued.all():
            length *= valued
            value -= 4 * ~valued
        after = value + length
        kind[:, column] = here
        bounds[:, column, 0] = value
        bounds[:, column, 1] = after
        if int(after.max()) > payloads.size:
            raise payloads.truncated_error(int(offset[after > payloads.size][0]))
        offset = after
    _check_kinds(payloads, kind, bounds)
    if not together:
        where = slot[:, None] + np.arange(width)
        values.kind[where], values.bounds[where] = kind, bounds
    return offset


def _output_arrays(width: int, slot: I64, values: TupleValues) -> tuple[U8, I32, bool]:
    """The arrays to write to: views of `values` if the tuples are adjacent, else temporary arrays to copy from."""
    rows = len(slot)
    if (np.diff(slot) != width).any():
        return np.empty((rows, width), np.uint8), np.empty((rows, width, 2), np.int32), False
    run = slice(int(slot[0]), int(slot[0]) + rows * width)
    return values.kind[run].reshape(rows, width), values.bounds[run].reshape(rows, width, 2), True


def _check_kinds(payloads: PayloadBuffer, kind: U8, bounds: I32) -> None:
    is_known = _KNOWN[kind]
    if is_known.all():
        return
    offset = int(bounds[~is_known][0, 0]) - 1
    if kind[~is_known][0] == BINARY:
        fix = "Start replication without the option `binary`"
        raise payloads.protocol_error("values are sent in binary form", offset, fix)
    raise payloads.truncated_error(offset)
