"""Decodes row messages (insert, update, delete) into rows: keys, key changes, known columns.

An update that changes the key is a delete of the old key and an update under the new one. An unchanged TOAST value is
taken from the old tuple if that has it, else it is absent. A tuple has all values of a row; an update has two tuples if
the server sent the old row or its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.common.errors import Failure
from ingest.common.row_key import row_keys
from ingest.sources.postgres.pgoutput.arrow_columns import build_maps, repeat
from ingest.sources.postgres.pgoutput.messages import RelationVersion
from ingest.sources.postgres.pgoutput.payload_buffer import I64, U8, Mask, PayloadBuffer
from ingest.sources.postgres.pgoutput.tuples import UNCHANGED, TupleValues, expand_ranges, walk_tuples

INSERT, UPDATE, DELETE = b"IUD"
NEW, KEY, OLD = b"NKO"
_FITS = np.zeros((256, 256), np.bool_)  # which tuple may come first, by message type
for _op, _markers in ((INSERT, [NEW]), (UPDATE, [NEW, KEY, OLD]), (DELETE, [KEY, OLD])):
    _FITS[_op, _markers] = True


@dataclass(frozen=True)
class DecodedRows:
    """Decoded rows in the stream's order, as parallel vectors.

    row: index of the row's message. second: it is the update of a key change, after the delete. op: the message's
    letter. unchanged_key: messages with an old tuple that are one row only, since the key is unchanged.
    """

    row: I64
    second: Mask
    op: U8
    row_key: pa.Array
    old_row_key: pa.Array
    is_partial: Mask
    columns: pa.Array
    unchanged_key: I64


class ColumnLayout:
    """The columns of a batch's relation versions: vectors by version index; by column from a version's `base` on."""

    def __init__(self, versions: Sequence[RelationVersion]) -> None:
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
class _DecodedTuples:
    """The tuples of a batch in the buffer's order; an old tuple directly precedes its new one.

    first: the first tuple of each message. paired: messages with an old and a new tuple. source: the index that holds
    each value: its own, or for an unchanged TOAST value that of the old tuple.
    """

    layout: ColumnLayout
    version: I64
    width: I64
    slot: I64
    first: I64
    paired: I64
    values: TupleValues
    source: I64


def decode_rows(payloads: PayloadBuffer, offset: I64, end: I64, version: I64, layout: ColumnLayout) -> DecodedRows:
    """The rows of the row messages from offsets `offset` to `end`. version: their indexes in `layout`."""
    op = payloads.u8(offset)
    tuples = _tuples(payloads, offset, end, version, layout)
    keys = _row_keys(tuples)
    old = tuples.first[tuples.paired]
    changed = np.asarray(pc.not_equal(keys.take(pa.array(old)), keys.take(pa.array(old + 1))))
    emit = np.ones(len(tuples.version), np.bool_)
    emit[old[~changed]] = False
    second = np.zeros_like(emit)
    second[old[changed] + 1] = True
    count = np.ones_like(offset)
    count[tuples.paired] = 2
    tuple_op = np.repeat(op, count)
    tuple_op[old] = DELETE
    at_tuple = np.flatnonzero(emit)
    columns, known_counts = _columns(tuples, emit)
    return DecodedRows(
        row=np.repeat(np.arange(len(offset)), count)[at_tuple],
        second=second[at_tuple],
        op=tuple_op[at_tuple],
        row_key=keys if emit.all() else keys.take(pa.array(at_tuple)),
        old_row_key=_old_row_keys(keys, at_tuple, second[at_tuple]),
        is_partial=(tuple_op[at_tuple] == UPDATE) & (known_counts < tuples.width[at_tuple]),
        columns=columns,
        unchanged_key=tuples.paired[~changed],
    )


def _old_row_keys(keys: pa.Array, at_tuple: I64, second: Mask) -> pa.Array:
    if not second.any():
        return pa.nulls(len(at_tuple), pa.string())
    return keys.take(pa.array(np.where(second, at_tuple - 1, 0), mask=~second))


def _tuples(payloads: PayloadBuffer, offset: I64, end: I64, version: I64, layout: ColumnLayout) -> _DecodedTuples:
    """Walk all tuples: the only or old tuple of every message, then the new tuples of messages with both."""
    op, marker = payloads.u8(offset), payloads.u8(offset + 5)
    wrong = ~_FITS[op, marker]
    if wrong.any():
        raise payloads.truncated_error(int(offset[wrong][0]))
    pair = (op == UPDATE) & (marker != NEW)
    first = np.arange(len(offset)) + np.cumsum(pair) - pair
    of_tuple = np.repeat(version, 1 + pair)
    width = layout.width[of_tuple]
    slot = np.cumsum(width) - width
    values = TupleValues(payloads, int(width.sum()))
    stop = walk_tuples(payloads, offset + 6, width[first], slot[first], values)
    paired = np.flatnonzero(pair)
    if paired.size:
        new = first[paired] + 1
        middle = stop[paired]
        if (payloads.u8(middle) != NEW).any():
            raise payloads.truncated_error(int(middle[payloads.u8(middle) != NEW][0]) - 1)
        stop[paired] = walk_tuples(payloads, middle + 1, width[new], slot[new], values)
    if (stop != end).any():
        raise payloads.truncated_error(int(offset[stop != end][0]))
    only_key = first[marker == KEY]
    columns = expand_ranges(layout.base[of_tuple[only_key]], width[only_key])
    _mark_absent(values, expand_ranges(slot[only_key], width[only_key]), layout.identity[columns])
    source = _resolve_unchanged(width, first[paired] + 1, values)
    return _DecodedTuples(layout, of_tuple, width, slot, first, paired, values, source)


def _mark_absent(values: TupleValues, of_key_tuples: I64, identity: Mask) -> None:
    """A tuple with the key only has NULL in all other columns: mark those values as absent."""
    values.kind[of_key_tuples[~identity]] = UNCHANGED


def _resolve_unchanged(width: I64, new: I64, values: TupleValues) -> I64:
    """The index that holds each value: for unchanged TOAST that of the old tuple, if it has the value."""
    source = np.arange(len(values.kind))
    if not new.size:
        return source
    absent = np.flatnonzero(values.kind == UNCHANGED)
    owner = np.repeat(np.arange(len(width)), width)[absent]
    has_old = np.zeros(len(width), np.bool_)
    has_old[new] = True
    absent, owner = absent[has_old[owner]], owner[has_old[owner]]
    before = absent - width[owner]
    source[absent] = np.where(values.kind[before] != UNCHANGED, before, absent)
    return source


def _row_keys(tuples: _DecodedTuples) -> pa.Array:
    """The row key of every tuple."""
    key_width = tuples.layout.key_width[tuples.version]
    groups, order = [], []
    for columns in np.flatnonzero(np.bincount(key_width)):
        members = np.flatnonzero(key_width == columns)
        values = tuples.slot[members, None] + tuples.layout.key[tuples.version[members], :columns]
        values = tuples.source[values]
        lacking = (tuples.values.kind[values] == UNCHANGED).any(axis=1)
        if lacking.any():
            raise _missing_key_failure(tuples.layout.versions[tuples.version[members[lacking][0]]])
        groups.append(row_keys([tuples.values.texts(s) for s in values.T], len(members)))
        order.append(members)
    if len(groups) == 1:
        return groups[0]
    whence = np.argsort(np.concatenate(order)) if order else np.empty(0, np.int64)
    return pa.concat_arrays([pa.array([], pa.string()), *groups]).take(pa.array(whence))


def _missing_key_failure(version: RelationVersion) -> Failure:
    return Failure(
        "change without key values: a TOAST value of the key was not sent, or the key is not the replica identity",
        version.info.table_name,
        "Update Postgres to its newest minor version, or set a replica identity of short columns, "
        "and run `tidemark resnapshot` for the table",
    )


def _columns(tuples: _DecodedTuples, emit: Mask) -> tuple[pa.Array, I64]:
    """The maps of the tuples to emit, and the number of known values in each."""
    layout, values = tuples.layout, tuples.values
    is_known = values.kind[tuples.source] != UNCHANGED
    if len(layout.versions) == 1 and is_known.all() and emit.all():
        names = repeat(layout.names, len(emit))
        return build_maps(tuples.width, names, values.texts(tuples.source)), tuples.width
    is_known &= np.repeat(emit, tuples.width)
    running = np.concatenate(([0], np.cumsum(is_known)))
    counts = (running[tuples.slot + tuples.width] - running[tuples.slot])[emit]
    chosen = np.flatnonzero(is_known)
    column = expand_ranges(layout.base[tuples.version], tuples.width)[chosen]
    names = pa.array(layout.names, pa.string()).take(pa.array(column))
    return build_maps(counts, names, values.texts(tuples.source[chosen])), counts
