"""From row messages (insert, update, delete) to records: keys, key changes, known columns.

The rules (design, P4, T1, T2): an update that changes the key is a delete of the old key and an
update under the new one; an unchanged TOAST value is taken from the old tuple where that has it,
else absent. A tuple is all the values of a row; an update has two if the server sent the old one or
its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.common.errors import Failure
from ingest.common.row_key import row_keys
from ingest.sources.postgres.pgoutput.arrow_columns import maps, tile
from ingest.sources.postgres.pgoutput.messages import Version
from ingest.sources.postgres.pgoutput.payload_buffer import I64, U8, Mask, Wire
from ingest.sources.postgres.pgoutput.tuples import UNCHANGED, Slots, spread, step

INSERT, UPDATE, DELETE = b"IUD"
NEW, KEY, OLD = b"NKO"
_FITS = np.zeros((256, 256), np.bool_)  # which tuple may come first, by message type
for _op, _markers in ((INSERT, [NEW]), (UPDATE, [NEW, KEY, OLD]), (DELETE, [KEY, OLD])):
    _FITS[_op, _markers] = True


@dataclass(frozen=True)
class Records:
    """Records in the stream's order, as parallel vectors.

    row: which of the messages it comes from. second: the update that follows the delete of a key
    change. op: the message's letter. alone: messages with an old tuple that are one record all the
    same, as the key stayed.
    """

    row: I64
    second: Mask
    op: U8
    row_key: pa.Array
    old_row_key: pa.Array
    is_partial: Mask
    columns: pa.Array
    alone: I64


class Layout:
    """Facts of the versions in a piece, as vectors by version number; from `base` on by column."""

    def __init__(self, versions: Sequence[Version]) -> None:
        self.versions = versions
        self.width = np.array([len(v.relation.columns) for v in versions], np.int64)
        self.base = np.cumsum(self.width) - self.width
        columns = [column for v in versions for column in v.relation.columns]
        self.names = [column.name for column in columns]
        self.identity = np.array([column.identity for column in columns], np.bool_)
        self.key_width = np.array([len(v.key) for v in versions], np.int64)
        self.key = np.zeros((len(versions), max(self.key_width, default=0)), np.int64)
        for i, v in enumerate(versions):
            self.key[i, : len(v.key)] = v.key


@dataclass(frozen=True)
class _Tuples:
    """The tuples of a piece in the buffer's order; an old one stands just before its new one.

    first: of each message. paired: messages that have an old and a new one. source: the slot that
    holds a slot's value (its own but for TOAST values found in the old tuple).
    """

    layout: Layout
    version: I64
    width: I64
    slot: I64
    first: I64
    paired: I64
    slots: Slots
    source: I64


def read(wire: Wire, at: I64, end: I64, version: I64, layout: Layout) -> Records:
    """The records of the row messages in `wire` that lie at `at` to `end`, of these versions."""
    op = wire.u8(at)
    tuples = _tuples(wire, at, end, version, layout)
    keys = _keys(tuples)
    old = tuples.first[tuples.paired]
    changed = np.asarray(pc.not_equal(keys.take(pa.array(old)), keys.take(pa.array(old + 1))))
    emit = np.ones(len(tuples.version), np.bool_)
    emit[old[~changed]] = False
    second = np.zeros_like(emit)
    second[old[changed] + 1] = True
    count = np.ones_like(at)
    count[tuples.paired] = 2
    tuple_op = np.repeat(op, count)
    tuple_op[old] = DELETE
    at_tuple = np.flatnonzero(emit)
    columns, known = _columns(tuples, emit)
    return Records(
        row=np.repeat(np.arange(len(at)), count)[at_tuple],
        second=second[at_tuple],
        op=tuple_op[at_tuple],
        row_key=keys if emit.all() else keys.take(pa.array(at_tuple)),
        old_row_key=_previous(keys, at_tuple, second[at_tuple]),
        is_partial=(tuple_op[at_tuple] == UPDATE) & (known < tuples.width[at_tuple]),
        columns=columns,
        alone=tuples.paired[~changed],
    )


def _previous(keys: pa.Array, at_tuple: I64, second: Mask) -> pa.Array:
    if not second.any():
        return pa.nulls(len(at_tuple), pa.string())
    return keys.take(pa.array(np.where(second, at_tuple - 1, 0), mask=~second))


def _tuples(wire: Wire, at: I64, end: I64, version: I64, layout: Layout) -> _Tuples:
    """Walk all tuples: the only or old one of every message, then the new one where both came."""
    op, marker = wire.u8(at), wire.u8(at + 5)
    wrong = ~_FITS[op, marker]
    if wrong.any():
        raise wire.cut_short(int(at[wrong][0]))
    pair = (op == UPDATE) & (marker != NEW)
    first = np.arange(len(at)) + np.cumsum(pair) - pair
    of_tuple = np.repeat(version, 1 + pair)
    width = layout.width[of_tuple]
    slot = np.cumsum(width) - width
    slots = Slots(wire, int(width.sum()))
    stop = step(wire, at + 6, width[first], slot[first], slots)
    paired = np.flatnonzero(pair)
    if paired.size:
        new = first[paired] + 1
        middle = stop[paired]
        if (wire.u8(middle) != NEW).any():
            raise wire.cut_short(int(middle[wire.u8(middle) != NEW][0]) - 1)
        stop[paired] = step(wire, middle + 1, width[new], slot[new], slots)
    if (stop != end).any():
        raise wire.cut_short(int(at[stop != end][0]))
    only_key = first[marker == KEY]
    columns = spread(layout.base[of_tuple[only_key]], width[only_key])
    _forget_fillers(slots, spread(slot[only_key], width[only_key]), layout.identity[columns])
    source = _fill(width, first[paired] + 1, slots)
    return _Tuples(layout, of_tuple, width, slot, first, paired, slots, source)


def _forget_fillers(slots: Slots, of_key_tuples: I64, identity: Mask) -> None:
    """A tuple that brings only the key has NULLs in all other columns: take them as absent."""
    slots.kind[of_key_tuples[~identity]] = UNCHANGED


def _fill(width: I64, new: I64, slots: Slots) -> I64:
    """The slot that holds each value: for unchanged TOAST the old tuple's if that has it."""
    source = np.arange(len(slots.kind))
    if not new.size:
        return source
    absent = np.flatnonzero(slots.kind == UNCHANGED)
    owner = np.repeat(np.arange(len(width)), width)[absent]
    has_old = np.zeros(len(width), np.bool_)
    has_old[new] = True
    absent, owner = absent[has_old[owner]], owner[has_old[owner]]
    before = absent - width[owner]
    source[absent] = np.where(slots.kind[before] != UNCHANGED, before, absent)
    return source


def _keys(tuples: _Tuples) -> pa.Array:
    """The row key of every tuple."""
    key_width = tuples.layout.key_width[tuples.version]
    groups, order = [], []
    for columns in np.flatnonzero(np.bincount(key_width)):
        members = np.flatnonzero(key_width == columns)
        slots = tuples.slot[members, None] + tuples.layout.key[tuples.version[members], :columns]
        slots = tuples.source[slots]
        lacking = (tuples.slots.kind[slots] == UNCHANGED).any(axis=1)
        if lacking.any():
            raise _lacks_key(tuples.layout.versions[tuples.version[members[lacking][0]]])
        groups.append(row_keys([tuples.slots.texts(s) for s in slots.T], len(members)))
        order.append(members)
    if len(groups) == 1:
        return groups[0]
    whence = np.argsort(np.concatenate(order)) if order else np.empty(0, np.int64)
    return pa.concat_arrays([pa.array([], pa.string()), *groups]).take(pa.array(whence))


def _lacks_key(version: Version) -> Failure:
    return Failure(
        "a change doesn't bring its row's key: a TOAST value of the key was left out, "
        "or the key is not the replica identity",
        version.info.table_name,
        "Bring Postgres to its newest minor version, or set a replica identity of short columns, "
        "and take a new snapshot of the table",
    )


def _columns(tuples: _Tuples, emit: Mask) -> tuple[pa.Array, I64]:
    """The maps of the tuples to be emitted, and how many values are known in each."""
    layout, slots = tuples.layout, tuples.slots
    known = slots.kind[tuples.source] != UNCHANGED
    if len(layout.versions) == 1 and known.all() and emit.all():
        names = tile(layout.names, len(emit))
        return maps(tuples.width, names, slots.texts(tuples.source)), tuples.width
    known &= np.repeat(emit, tuples.width)
    running = np.concatenate(([0], np.cumsum(known)))
    counts = (running[tuples.slot + tuples.width] - running[tuples.slot])[emit]
    chosen = np.flatnonzero(known)
    column = spread(layout.base[tuples.version], tuples.width)[chosen]
    names = pa.array(layout.names, pa.string()).take(pa.array(column))
    return maps(counts, names, slots.texts(tuples.source[chosen])), counts
