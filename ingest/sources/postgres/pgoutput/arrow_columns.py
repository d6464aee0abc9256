"""Builds Arrow arrays: strings checked for UTF-8, repeated names, and maps."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.sources.postgres.text_encoding import utf8_failure


def repeat(names: Sequence[str], times: int) -> pa.Array:
    """`names` repeated `times` times, as one string array. Raises ValueError from 2 GiB on."""
    encoded = [name.encode() for name in names]
    row = b"".join(encoded)
    if len(row) * times >= 2**31:
        raise ValueError("the column names of a batch exceed 2 GiB: feed fewer messages at once")
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int32)
    offsets = np.zeros(len(names) * times + 1, np.int32)
    offsets[1:] = (np.arange(times, dtype=np.int32)[:, None] * np.int32(len(row)) + ends).ravel()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(row * times)]
    return pa.Array.from_buffers(pa.string(), len(names) * times, buffers)


def to_strings(values: pa.Array, where: str) -> pa.Array:
    """Binary values as strings. Raises `Failure` if one is not UTF-8; where: the source's name."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise utf8_failure("value", where) from error


def build_maps(counts: npt.NDArray[np.int64], keys: pa.Array, items: pa.Array) -> pa.Array:
    """A MAP<STRING, STRING> per row: the next `counts[row]` of `keys` and `items`."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items)
