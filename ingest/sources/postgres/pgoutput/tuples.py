"""pgoutput's tuples, many at a time: a vector of positions is moved over them column by column.

The idea: tuples of one width are walked together, so the work per column is a handful of numpy
calls, not a loop over rows. What comes out are *slots*, one per value, in the buffer's order;
strings are only made of the slots that are asked for, by Arrow, from an array laid over the buffer.
"""

import numpy as np
import pyarrow as pa

from ingest.sources.postgres.pgoutput.arrow_columns import text
from ingest.sources.postgres.pgoutput.payload_buffer import I32, I64, U8, Wire

NULL, TEXT, UNCHANGED, BINARY = b"ntub"
_KNOWN = np.zeros(256, dtype=np.bool_)
_KNOWN[[NULL, TEXT, UNCHANGED]] = True


class Slots:
    """The values of a run of tuples. kind: `t`, `n` or `u`; bounds: start and end of each."""

    def __init__(self, wire: Wire, count: int) -> None:
        self._wire = wire
        self.kind: U8 = np.empty(count, np.uint8)
        # As one run of numbers the bounds are the offsets of an array whose even elements are the
        # values.
        self._offsets: I32 = np.zeros(2 * count + 1, np.int32)
        self.bounds: I32 = self._offsets[:-1].reshape(count, 2)

    def texts(self, slots: I64) -> pa.Array:
        """The values in `slots` as strings, null where the value is NULL."""
        nulls = self.kind[slots] == NULL
        indices = pa.array(slots * 2, mask=nulls if nulls.any() else None)
        return text(self._array().take(indices), self._wire.source)

    def _array(self) -> pa.Array:
        self._offsets[-1] = self._offsets[-2:].max()
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._wire.buffer)]
        return pa.Array.from_buffers(pa.binary(), len(self._offsets) - 1, buffers)


def spread(first: I64, count: I64) -> I64:
    """`first[i], first[i] + 1, ...`, `count[i]` numbers for each i."""
    end = np.cumsum(count)
    total = int(end[-1]) if len(end) else 0
    return np.repeat(first - (end - count), count) + np.arange(total)


def step(wire: Wire, at: I64, width: I64, slot: I64, slots: Slots) -> I64:
    """Walk the tuples that begin at `at` and have `width` columns; where each of them ends.

    Value c of tuple i goes to `slots[slot[i] + c]`. Raises `Failure` for a tuple of another width,
    one that leaves the buffer, and binary values.
    """
    end = np.empty_like(at)
    for columns in np.flatnonzero(np.bincount(width)):
        members = np.flatnonzero(width == columns)
        end[members] = _walk(wire, at[members], int(columns), slot[members], slots)
    return end


def _walk(wire: Wire, at: I64, width: int, slot: I64, slots: Slots) -> I64:
    wrong = wire.u16(at) != width
    if wrong.any():
        raise wire.cut_short(int(at[wrong][0]))
    kind, bounds, together = _target(width, slot, slots)
    at = at + 2
    for column in range(width):
        here, length, value = wire.u8(at), wire.u32(at + 1), at + 5
        valued = here == TEXT
        if not valued.all():
            length *= valued
            value -= 4 * ~valued
        after = value + length
        kind[:, column] = here
        bounds[:, column, 0] = value
        bounds[:, column, 1] = after
        if int(after.max()) > wire.size:
            raise wire.cut_short(int(at[after > wire.size][0]))
        at = after
    _check_kinds(wire, kind, bounds)
    if not together:
        where = slot[:, None] + np.arange(width)
        slots.kind[where], slots.bounds[where] = kind, bounds
    return at


def _target(width: int, slot: I64, slots: Slots) -> tuple[U8, I32, bool]:
    """Where to write tuples: into the slots themselves if those lie together, else copied later."""
    rows = len(slot)
    if (np.diff(slot) != width).any():
        return np.empty((rows, width), np.uint8), np.empty((rows, width, 2), np.int32), False
    run = slice(int(slot[0]), int(slot[0]) + rows * width)
    return slots.kind[run].reshape(rows, width), slots.bounds[run].reshape(rows, width, 2), True


def _check_kinds(wire: Wire, kind: U8, bounds: I32) -> None:
    known = _KNOWN[kind]
    if known.all():
        return
    at = int(bounds[~known][0, 0]) - 1
    if kind[~known][0] == BINARY:
        fix = "Start replication without the option `binary`"
        raise wire.failure("values are sent in binary form", at, fix)
    raise wire.cut_short(at)
