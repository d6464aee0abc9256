"""Macros of definitions that work on SQL text."""

from types import SimpleNamespace

import pytest

from tests.unit.calling import Macros

MACROS = Macros("bucket/check_row_wise", "bucket/bucket_columns", "bucket/bucket_definition")


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("Filter (d#11 < cast(TODAY as date))", "TODAY"),
        ("Filter (d#11 < try_cast(today Europe/Amsterdam as date))", "today"),
        ("Filter isnull(cast( now as timestamp_ntz))", "now"),
        ("Filter (d#11 < to_date(today, None, Some(UTC), true))", "today"),
        ("Project [try_to_timestamp( Now UTC, None, TimestampType, Some(UTC), false) AS t#3]", "Now"),
        ("Project [now() AS t#3]", "now"),
        ("Filter between(cast(t#1 as date), yesterday, today)", "yesterday"),
        ("Filter between(t#1, 2020-01-01, NOW)", "NOW"),
        ("Filter (extract(day, now) > 1)", "now"),
        ("Filter (d#11 < cast(now - INTERVAL '1' DAY as date))", "now"),
        ("Project [cast(today#5 as date) AS d#6, to_date(now#6, None, Some(UTC), true) AS e#7]", ""),
        ("Filter between(today#5, yesterday#6, now#7)", ""),
        ("Filter ((between(t#1, a#2, b#3) AND (status#4 = now)) AND (today#5 - INTERVAL '1' DAY < t#1))", ""),
        ("Project [cast(now as string) AS a#6, cast(2020-01-01 as date) AS d#7, cast(nowhere as date) AS e#8]", ""),
    ],
)
def test_a_relative_date_in_the_plan_is_detected(plan: str, expected: str) -> None:
    assert MACROS._row_wise_violation({"operator": plan.partition(" ")[0], "text": plan}).strip() == expected


@pytest.mark.parametrize(
    ("sql", "normalized"),
    [
        ("select  1,\n 'a  b' -- it's\n , x /* it's */ from t", "select 1,'a  b',x from t"),
        ("select 1 /* a /* b */ it's */ , 'c /* ' , 2 -- */", "select 1,'c /* ',2"),
        ("select 1 /* a /* b /* c **/ /*/ d */ */ it's */ , 'e'", "select 1,'e'"),
        ("select 1 /* a /*+ hint */ , 'it''s  ' /* b */", "select 1,'it''s  '"),
        ("select 1 -- it's \\\n it's \r, 'b'", "select 1,'b'"),
    ],
)
def test_comments_and_white_space_are_no_difference(sql: str, normalized: str) -> None:
    """The end of a comment decides what a string is: Spark's comments nest, except in what looks like a hint."""
    assert MACROS.normalized_sql(sql) == normalized


@pytest.mark.parametrize("end", [";", " ; ", ";;", "; -- the end\n", ";\n/* the */ ; -- end"])
def test_a_semicolon_at_the_end_is_no_difference(end: str) -> None:
    assert MACROS.normalized_sql(f"select ';' as a{end}") == "select ';' as a"
    assert MACROS.normalized_sql(f"select ';'{end}") == "select ';'"


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


@pytest.mark.parametrize("form", ["{}: {}\n", " |-- {}: {} (nullable = true)\n"])
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
def test_integer_columns_are_recognised(form: str, columns: list[str], are_numbers: bool) -> None:
    types = {"id": "bigint", "n (1)": "integer", "at": "timestamp", "day": "interval day", "x": "struct<x: int>"}
    information = "".join(form.format(*column) for column in types.items()) + " |    |-- x: integer (nullable = true)\n"
    for relation, expected in [(SimpleNamespace(information=information), are_numbers), (None, not columns)]:
        macros = Macros("bucket/changed_rows", load_relation=lambda _, relation=relation: relation)
        assert macros.are_whole_numbers("buckets.b", columns) is expected
