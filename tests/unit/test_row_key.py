"""`row_key` is the same JSON text for a key, whichever code writes it."""

import json

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.common.row_key import row_keys

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SPIKY = st.text(st.sampled_from('"\\\x00\x01\b\t\n\v\f\r\x1f\x7f,[]/ä\u2028😀 a'), max_size=6)
VALUE = st.one_of(st.none(), TEXT, SPIKY)


def keys(*columns: list[str | None]) -> list[str]:
    values = [pa.array(column, pa.string()) for column in columns]
    result: list[str] = row_keys(values).to_pylist()
    return result


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (["42"], '["42"]'),
        (["42", "x"], '["42","x"]'),
        ([""], '[""]'),
        ([None], "[null]"),
        ([None, None], "[null,null]"),
        (["null"], '["null"]'),
        (["a", None, "b"], '["a",null,"b"]'),
        (['a"b'], r'["a\"b"]'),
        (["a\\b"], r'["a\\b"]'),
        (["\\n\n"], r'["\\n\n"]'),
        (["\x00\x1f\x7f"], '["\\u0000\\u001f\x7f"]'),
        (["żółw 🐢"], '["żółw 🐢"]'),
        (["</script>"], '["</script>"]'),
    ],
)
def test_a_key_is_a_compact_json_array_of_strings(key: list[str | None], expected: str) -> None:
    assert keys(*[[value] for value in key]) == [expected]


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(VALUE, min_size=n, max_size=n), min_size=1)))
def test_every_key_is_valid_json_and_equals_that_of_json_libraries(
    rows: list[list[str | None]],
) -> None:
    result = keys(*map(list, zip(*rows, strict=True)))
    assert [orjson.loads(key) for key in result] == rows
    assert result == [orjson.dumps(row).decode() for row in rows]
    assert result == [json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows]


@given(st.lists(VALUE, min_size=2), st.data())
def test_a_slice_of_an_array_gives_the_same_keys(rows: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    whole = pa.array(rows, pa.string())
    assert row_keys([whole.slice(start)]).to_pylist() == row_keys([whole]).to_pylist()[start:]


def test_the_bytes_under_a_null_are_ignored() -> None:
    hidden = pa.StringArray.from_buffers(
        2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b'"x'), pa.py_buffer(b"\x02")
    )
    assert row_keys([hidden]).to_pylist() == ["[null]", '["x"]']


def test_no_rows_have_no_keys_and_no_columns_have_empty_keys() -> None:
    assert row_keys([pa.array([], pa.string())]).to_pylist() == []
    assert row_keys([], rows=3).to_pylist() == ["[]"] * 3
    assert row_keys([]).type == pa.string()
