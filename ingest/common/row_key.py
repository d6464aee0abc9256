"""`row_key`: the JSON array of a key's values, as strings or null; the same bytes on every path.

Compact, in key order. Only quotes, backslashes and control characters are escaped (JSON's short forms, otherwise
lower-case hex); other characters are unchanged.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SHORT_ESCAPES = {
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0C: "\\f",
    0x0D: "\\r",
    0x22: '\\"',
    0x5C: "\\\\",
}
# The backslash comes first, because the other replacements add backslashes.
_ESCAPES = {
    code: _SHORT_ESCAPES.get(code, f"\\u{code:04x}")
    for code in (0x5C, *(c for c in range(0x23) if c < 0x20 or c == 0x22))
}
_SPECIAL = np.zeros(256, dtype=np.bool_)
_SPECIAL[list(_ESCAPES)] = True


def row_keys(values: Sequence[pa.Array], rows: int | None = None) -> pa.Array:
    """The row keys of `values`: one string array per key column, in key order, all of one length.

    rows: the number of rows, needed only without key columns (each key is `[]`). The result has no nulls.
    """
    if not values:
        return pa.repeat(pa.scalar("[]"), rows or 0)
    parts: list[pa.Array | str] = []
    literal = "["
    for column in values:
        escaped = _escape(column)
        if escaped.null_count:
            quoted = pc.binary_join_element_wise('"', escaped, '"', "")
            parts += [literal, quoted.fill_null("null")]
            literal = ","
        else:
            parts += [literal + '"', escaped]
            literal = '",'
    return pc.binary_join_element_wise(*parts, literal[:-1] + "]", "")


def _escape(values: pa.Array) -> pa.Array:
    """`values` with JSON escapes; rows that need none are not changed."""
    _, offsets_buffer, data_buffer = values.buffers()
    if data_buffer is None or not len(values):
        return values
    offsets = np.frombuffer(offsets_buffer, np.int32, len(values) + 1, values.offset * 4)
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    special_offsets = np.flatnonzero(_SPECIAL[data])
    if not special_offsets.size:
        return values
    escaped_bytes = np.flatnonzero(np.bincount(data[special_offsets], minlength=256))
    needs_escapes = np.zeros(len(values), dtype=np.bool_)
    needs_escapes[np.searchsorted(offsets, special_offsets + offsets[0], side="right") - 1] = True
    mask = pa.array(needs_escapes)
    escaped_values = values.filter(mask)
    for code, escape in _ESCAPES.items():
        if code in escaped_bytes:
            escaped_values = pc.replace_substring(escaped_values, chr(code), escape)
    return pc.replace_with_mask(values, mask, escaped_values)
