"""Macros of definitions that work on types."""

from types import SimpleNamespace

import pytest

from tests.unit.calling import Macros


@pytest.mark.parametrize(
    ("columns", "are_numbers"),
    [
        ([], True),
        (["id"], True),
        (["ID", "n (1)"], True),
        (["id", "at"], False),
        (["day"], False),
        (["x"], False),
        (["_row_key"], False),
    ],
)
def test_integer_columns_are_recognised(columns: list[str], are_numbers: bool) -> None:
    types = {"Id": "bigint", "n (1)": "integer", "at": "timestamp", "day": "interval day", "x": "struct"}
    macros = Macros("bucket/changed_rows", adapter=SimpleNamespace(columns_at_start=lambda _: types))
    assert macros.are_whole_numbers("buckets.b", columns) is are_numbers
