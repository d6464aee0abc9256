"""Walks many BSON documents at once: a vector of offsets advances over them, element by element. Pure.

A document that is broken, and one that has more elements than most, is not an error here. It is left out, and named: it
is better read by itself. https://bsonspec.org/spec.html
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ingest.sources.mongodb.bson.elements import FIXED, PREFIXED, REGEX, Fields, fields

I64: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Of fewer elements at the same place each one costs more than by itself.
LEAST = 50
# Numbers that begin near the end are read past it before the error is detected.
_PADDING = 16

_FIXED = np.full(256, -1)
_FIXED[list(FIXED)] = list(FIXED.values())
_PREFIXED = np.full(256, -1)
_PREFIXED[list(PREFIXED)] = list(PREFIXED.values())


class BsonBuffer:
    """Documents in one buffer, and views of its bytes as numbers. start, end: offsets of each document."""

    def __init__(self, documents: Sequence[bytes]) -> None:
        self.buffer = b"".join([*documents, bytes(_PADDING)])
        size = np.fromiter(map(len, documents), np.int64, len(documents))
        self.end: I64 = np.cumsum(size)
        self.start: I64 = self.end - size
        self.u8 = np.frombuffer(self.buffer, np.uint8)
        self.u32, self.i32, self.i64, self.f64 = map(self._overlapping, ("<u4", "<i4", "<i8", "<f8"))

    def _overlapping(self, form: str) -> npt.NDArray[Any]:
        """A view with a number of type `form` at every byte offset."""
        kind = np.dtype(form)
        return np.ndarray((len(self.buffer) - kind.itemsize + 1,), kind, self.buffer, strides=(1,))

    @cached_property
    def _nuls(self) -> I64:
        return np.flatnonzero(self.u8 == 0)

    def nul(self, offset: I64) -> I64:
        """The offset of the first zero byte from each offset on."""
        return self._nuls[np.searchsorted(self._nuls, offset)]


@dataclass(frozen=True)
class ElementLevel:
    """The elements of documents that were walked together, in order, without those of any document beneath.

    owner: the place of each one's document among them; kind: its type. Its name is at `name:start - 1` of the page, its
    value at `start:end`. whole: which documents were walked to their ends; of others there are no elements.
    """

    owner: I64
    kind: I64
    name: I64
    start: I64
    end: I64
    whole: Mask


def walk(page: BsonBuffer, start: I64, end: I64) -> ElementLevel:
    """The elements of the documents at `start:end`."""
    whole = (end - start > 4) & (page.u32[start] == end - start) & (page.u8[end - 1] == 0)
    owner = np.flatnonzero(whole)
    offset, last = start[owner] + 4, end[owner] - 1
    steps = []
    while True:
        kind = page.u8[offset].astype(np.int64)
        ended = kind == 0
        whole[owner[ended]] = offset[ended] == last[ended]
        owner, offset, last, kind = (array[~ended] for array in (owner, offset, last, kind))
        if len(owner) < LEAST:
            whole[owner] = False
            break
        value = page.nul(offset + 1) + 1
        after = value + _size(page, kind, value, last)
        sound = after <= last
        if not sound.all():
            whole[owner[~sound]] = False
            owner, offset, last, kind, value, after = (
                array[sound] for array in (owner, offset, last, kind, value, after)
            )
        steps.append((owner, kind, offset + 1, value, after))
        offset = after
    return _in_order(steps, whole)


def _size(page: BsonBuffer, kind: I64, value: I64, last: I64) -> I64:
    """The sizes of values; for an invalid value, more than its document has."""
    size = _FIXED[kind]
    if (varying := size < 0).any():
        # What begins beyond its document is refused by its end, whatever the length says.
        within = np.minimum(value, last)
        said = page.u32[within].astype(np.int64)
        varies = np.where(_PREFIXED[kind] < 0, len(page.buffer), said + _PREFIXED[kind])
        size = np.where(varying, varies, size)
        if (pattern := kind == REGEX).any():
            options = page.nul(within[pattern]) + 1
            size[pattern] = page.nul(np.minimum(options, last[pattern])) + 1 - value[pattern]
    return size


def _in_order(steps: Sequence[tuple[I64, ...]], whole: Mask) -> ElementLevel:
    nothing = (np.empty(0, np.int64),) * 5
    owner, kind, name, start, end = map(np.concatenate, zip(nothing, *steps, strict=True))
    order = np.argsort(owner, kind="stable")
    order = order[whole[owner[order]]]
    return ElementLevel(owner[order], kind[order], name[order], start[order], end[order], whole)


def split(documents: Sequence[bytes]) -> list[Fields]:
    """The fields of each document: see `elements.fields`."""
    if len(documents) < LEAST:
        return [fields(document) for document in documents]
    level = walk(page := BsonBuffer(documents), page.start, page.end)
    fields_of: list[Fields] = [{} for _ in documents]
    buffer = page.buffer
    bounds = (level.owner, level.kind, level.name, level.start, level.end)
    for owner, kind, name, start, end in zip(*(array.tolist() for array in bounds), strict=True):
        fields_of[owner][buffer[name : start - 1]] = kind, buffer[start:end]
    for place in np.flatnonzero(~level.whole).tolist():
        fields_of[place] = fields(documents[place])
    return fields_of
