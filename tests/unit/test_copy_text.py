"""COPY's text format is decoded exactly, for any values."""

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.common.errors import Failure
from ingest.sources.postgres.snapshot import copy_text
from ingest.sources.postgres.snapshot.copy_text import decode

Value = str | None
ESCAPES = {
    "\\": r"\\",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
}


def encode(row: list[Value]) -> bytes:
    """A row as the server writes it."""
    values = (r"\N" if value is None else "".join(ESCAPES.get(char, char) for char in value) for value in row)
    return ("\t".join(values) + "\n").encode()


def rows(payloads: list[bytes | memoryview], names: list[str]) -> list[list[Any]]:
    result = []
    for batch in decode(payloads, names):
        batch.columns.validate(full=True)
        assert len(batch.columns) == batch.count
        maps = batch.columns.to_pylist(maps_as_pydicts="strict")
        assert all(list(row) == names for row in maps)
        result += [list(row.values()) for row in maps]
    return result


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"1\ta\n", ["1", "a"]),
        (b"\t\n", ["", ""]),
        (b"\\N\t\\N\n", [None, None]),
        (b"\\\\N\tN\n", [r"\N", "N"]),
        (b"\\\\\\\\N\t\\\\\n", [r"\\N", "\\"]),
        (b"\\b\\f\\n\\r\\t\\v\\\\\t\\\\b\n", ["\b\f\n\r\t\v\\", r"\b"]),
        (b"\\\\\\\\n\t\\\\\\n\n", [r"\\n", "\\\n"]),
        (b"a\\tb\tx\\\\\n", ["a\tb", "x\\"]),
        (b"\\x\t\\N\n", ["x", None]),
        ("żółw\t🐢\n".encode(), ["żółw", "🐢"]),
        (b"\\.\t\n", [".", ""]),
    ],
)
def test_a_row_is_decoded(wire: bytes, expected: list[Value]) -> None:
    assert rows([wire], ["a", "b"]) == [expected]


def test_a_row_of_one_empty_column_is_decoded() -> None:
    assert rows([b"\n", b"\\N\n", b"\n"], ["a"]) == [[""], [None], [""]]


def test_rows_without_columns_are_decoded() -> None:
    (batch,) = decode([b"\n", b"\n\n"], [])
    assert (batch.count, batch.columns.to_pylist(), batch.keys) == (3, [[], [], []], [])


def test_empty_data_has_no_rows() -> None:
    assert list(decode([], ["a"])) == []
    assert list(decode([b""], ["a"])) == []


def test_keys_are_in_key_order() -> None:
    (batch,) = decode([b"1\tx\t2\n", b"3\t\\N\t\\\\\n"], ["a", "b", "c"], ["c", "a"])
    assert [key.to_pylist() for key in batch.keys] == [["2", "\\"], ["1", "3"]]


VALUE = st.one_of(
    st.none(),
    st.text(st.sampled_from("\\\\\\N\b\f\n\r\t\vbfnrtv.x1ä🐢"), max_size=6),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
)
TABLE = st.integers(0, 4).flatmap(lambda width: st.lists(st.lists(VALUE, min_size=width, max_size=width), min_size=1))


@given(TABLE, st.sampled_from([1, 10, 2**24]), st.booleans())
def test_any_rows_are_decoded(table: list[list[Value]], batch: int, one_buffer: bool) -> None:
    names = [f"column {i}" for i in range(len(table[0]))]
    payloads: list[bytes | memoryview] = [memoryview(encode(row)) for row in table]
    with mock.patch.object(copy_text, "BATCH_BYTES", batch):
        assert rows([b"".join(payloads)] if one_buffer else payloads, names) == table
        decoded = list(decode(payloads, names, names[::-1]))
    keys = [[value for b in decoded for value in b.keys[i].to_pylist()] for i in range(len(names))]
    assert keys == [[row[-1 - i] for row in table] for i in range(len(names))]


def test_batches_are_bounded() -> None:
    with mock.patch.object(copy_text, "BATCH_BYTES", 10):
        long = b"x" * 50 + b"\n"
        counts = [b.count for b in decode([b"1\n" * 12, long, b"1\n", long + b"2\n"], ["a"])]
    assert counts == [5, 5, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("wire", "width"),
    [
        (b"1\t2\n", 1),
        (b"1\n", 2),
        (b"1\t2\t3\n4\n", 2),
        (b"1\t2", 2),
        (b"1\t2\n3", 2),
        (b"1\t2\n3\t", 2),
        (b"x\n", 0),
        (b"\t\n", 0),
        (b"a\\\tb\n", 2),
        (b"a\tb\\\n", 2),
    ],
)
def test_rows_with_another_number_of_columns_are_refused(wire: bytes, width: int) -> None:
    with pytest.raises(Failure, match=r"rows that do not have the requested columns: shop\."):
        list(decode([wire], [f"c{i}" for i in range(width)], source="shop"))


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(Failure, match="not valid UTF-8: shop"):
        list(decode([b"\xff\n"], ["a"], source="shop"))
