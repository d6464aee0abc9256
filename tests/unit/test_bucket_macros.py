"""Macros of definitions that work on types."""

from types import SimpleNamespace

import pytest

from tests.unit.calling import Macros

MACROS = Macros("bucket/bucket_columns")


@pytest.mark.parametrize(
    ("kind", "is_storable"),
    [
        ("bigint", True),
        ("timestamp_ntz", True),
        ("variant", True),
        ("array<struct<time:timestamp,interval:int,void:string>>", True),
        ("void", False),
        ("array<void>", False),
        ("interval day to second", False),
        ("map<string,interval year to month>", False),
        ("time(6)", False),
        ("struct<a:time(6)>", False),
        ("struct<a b:int>", False),
        ("struct<a,b:int>", False),
        ("struct<a>b:int>", False),
        ("struct<é:int>", False),
        ("struct<array<int>x:int>", False),
        ("struct<xarray<int>:int>", False),
        ("struct<a:b:int>", False),
        ("struct<1:int>", False),
        ("struct<1l:int>", False),
        ("struct<>", False),
        ("map<string,struct<>>", False),
        ("struct<a:int,A:int>", False),
        ("struct<a:int,a:int>", False),
        ("array<struct<a:struct<b:decimal(9,2),c:int,B:int>>>", False),
        ("struct<a:struct<a:int>,b:struct<a:int,b:map<string,array<int>>>,c:decimal(9,2)>", True),
    ],
)
def test_a_type_that_no_table_can_have_is_reported(kind: str, is_storable: bool) -> None:
    assert MACROS._is_storable(kind) == is_storable


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
