"""Documents as canonical Extended JSON, held against PyMongo's own; clusterTimes and tokens."""

import json
import math
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Regex, encode, json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from ingest.mongodb import clustertime, documents

_DATES = DatetimeConversion.DATETIME_MS
_EXACT = CodecOptions[dict[str, Any]](datetime_conversion=_DATES)
_CANONICAL = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, datetime_conversion=_DATES)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_names = _text.filter(lambda name: "\0" not in name and not name.startswith("$"))
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    _text,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(),
    st.binary(max_size=5),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.integers(-(2**63), 2**63 - 1).map(DatetimeMS),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.sampled_from([Decimal128("1E+3"), Decimal128("NaN"), Decimal128("-0.10"), Regex("a/b", "im")]),
)
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_names, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(_names, _values, max_size=4))
def test_every_document_is_as_pymongo_writes_it(document: dict[str, Any]) -> None:
    raw = encode(document, codec_options=_EXACT)
    assert documents.parse(raw) == json.loads(json_util.dumps(document, json_options=_CANONICAL))


@given(st.floats(allow_nan=False))
def test_a_double_has_the_shortest_text_that_reads_back(number: float) -> None:
    text = documents.parse(encode({"x": number}))["x"]["$numberDouble"]
    assert text == ("-Infinity" if number < 0 else "Infinity") if math.isinf(number) else text == repr(number)


def test_a_string_that_looks_like_a_double_stays() -> None:
    for text in ('"$numberDouble" : "1.50"', '{"$numberDouble":"1.50"}'):
        assert documents.parse(encode({"x": text})) == {"x": text}
    assert documents.parse(encode({"x": {"$numberDouble": "no number"}})) == {"x": {"$numberDouble": "no number"}}


def test_columns_tell_null_from_absent_and_a_record_without_document_from_both() -> None:
    found = documents.columns([{"a": None, "b": {"$numberInt": "1"}}, {}, None]).to_pylist()
    assert found == [[("a", None), ("b", '{"$numberInt":"1"}')], [], None]


ALIKE: list[tuple[list[Any], str]] = [
    ([1, Int64(1), 1.0, Decimal128("1"), Decimal128("1.00"), Decimal128("10E-1")], '{"$numberInt":"1"}'),
    ([0, -0.0, Decimal128("-0"), Decimal128("0E+100")], '{"$numberInt":"0"}'),
    ([Int64(2**40), 2.0**40, Decimal128("1099511627776")], '{"$numberLong":"1099511627776"}'),
    ([Int64(-(2**63)), -(2.0**63)], '{"$numberLong":"-9223372036854775808"}'),
    ([0.5, Decimal128("0.50")], '{"$numberDouble":"0.5"}'),
    ([2.0**63, Decimal128("9223372036854775808")], '{"$numberDouble":"9.223372036854776e+18"}'),
    ([0.1], '{"$numberDouble":"0.1"}'),
    ([Decimal128("0.1"), Decimal128("0.10")], '{"$numberDecimal":"0.1"}'),
    ([Decimal128("1E+6000"), Decimal128("10E+5999")], '{"$numberDecimal":"1E+6000"}'),
    ([float("nan"), Decimal128("NaN"), Decimal128("-NaN")], '{"$numberDouble":"NaN"}'),
    ([float("-inf"), Decimal128("-Infinity")], '{"$numberDouble":"-Infinity"}'),
    ([{"a": 1, "b": [Int64(2)]}, {"a": 1.0, "b": [2]}], '{"a":{"$numberInt":"1"},"b":[{"$numberInt":"2"}]}'),
    (["1"], '"1"'),
    ([True], "true"),
]


@pytest.mark.parametrize(("identifiers", "spelled"), ALIKE, ids=[spelled for _, spelled in ALIKE])
def test_row_keys_tell_values_apart_not_the_types_of_numbers(identifiers: list[Any], spelled: str) -> None:
    keys = {documents.row_key(documents.parse(encode({"_id": each}))["_id"]) for each in identifiers}
    assert keys == {f"[{spelled}]"}


def test_bytes_that_are_no_utf8_are_escaped() -> None:
    raw = encode({"x": "abcd"}).replace(b"abcd", b"a\xff\xfed")
    assert documents.parse(raw) == {"x": r"a\xff\xfed"}


def test_a_document_that_only_looks_like_a_number_is_left_alone() -> None:
    assert documents.parse(encode({"x": {"$numberDouble": " 1_0 "}})) == {"x": {"$numberDouble": " 1_0 "}}


def test_positions_and_timestamps_are_the_same_numbers() -> None:
    at = clustertime.position(Timestamp(1_700_000_000, 7))
    assert clustertime.timestamp(at) == Timestamp(1_700_000_000, 7)
    assert clustertime.of_parsed({"$timestamp": {"t": 1_700_000_000, "i": 7}}) == at
    assert clustertime.of_token(f"82{at:016X}2B0429296E1404") == at
    assert clustertime.readable(at) == "2023-11-14T22:13:20Z+7"


@pytest.mark.parametrize("token", [None, "81" + "0" * 16, "82", b"82"])
def test_what_is_no_token_of_a_known_form_is_refused(token: object) -> None:
    with pytest.raises(ValueError, match="not a resume token"):
        clustertime.of_token(token)
