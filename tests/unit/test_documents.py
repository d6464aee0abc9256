"""Documents as canonical Extended JSON, compared with PyMongo's output; clusterTimes and tokens."""

import json
import math
import random
from typing import Any

import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, encode, json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.mongodb import cluster_time
from ingest.sources.mongodb.bson import document_keys, documents, elements
from ingest.sources.mongodb.bson.documents import DocumentBatch
from ingest.sources.mongodb.bson.vector_walk import LEAST

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


def test_a_string_that_looks_like_a_double_is_unchanged() -> None:
    for text in ('"$numberDouble" : "1.50"', '{"$numberDouble":"1.50"}'):
        assert documents.parse(encode({"x": text})) == {"x": text}
    assert documents.parse(encode({"x": {"$numberDouble": "no number"}})) == {"x": {"$numberDouble": "no number"}}


def test_null_and_absent_fields_are_distinguished() -> None:
    rows = DocumentBatch([encode({"a": None, "b": 1}), encode({})]).columns().to_pylist()
    assert rows == [[("a", None), ("b", '{"$numberInt":"1"}')], []]


def _fields(raw: bytes) -> list[tuple[str, str | None]]:
    parsed = documents.parse(raw).items()
    return [(name, None if value is None else documents.json_text(value)) for name, value in parsed]


def _same(raw: list[bytes]) -> None:
    """The batch decoder reads each of them as `parse` does."""
    batch = DocumentBatch(raw)
    assert batch.columns().to_pylist() == [_fields(raw_document) for raw_document in raw]
    assert batch.row_keys().to_pylist() == [
        document_keys.row_key(elements.value(raw_document, b"_id")) for raw_document in raw
    ]


_odd_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(lambda name: "\0" not in name)
_odd_values = st.one_of(
    st.sampled_from(
        [
            *(MinKey(), MaxKey(), Code("f()"), Code("f()", {"x": 1}), DBRef("c", 1), Regex("a.*b", "xim")),
            *(Binary(bytes(16), 4), Binary(b"old", 2), Int64(2**40), Int64(7), Decimal128("1.10")),
            'a"b\\c\x1f\0',
            {"$numberDouble": "1.50"},
            {"$date": 1},
            [[]],
            {},
            1e-5,
            -0.0,
            1e10,
            1e300,
        ]
    ),
    st.builds(Binary, st.binary(max_size=5), st.integers(0, 255)),
    _values,
)


@given(
    st.lists(
        st.tuples(_odd_values, st.dictionaries(_odd_names.filter(lambda name: name != "_id"), _odd_values, max_size=5)),
        min_size=1,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_a_batch_is_decoded_like_single_documents(
    kinds: list[tuple[Any, dict[str, Any]]], order: random.Random
) -> None:
    raw = [encode({"_id": key, **rest}, codec_options=_EXACT) for key, rest in kinds] * (LEAST + 5)
    order.shuffle(raw)
    _same(raw)


def test_unusual_documents_in_a_batch_are_decoded_alone() -> None:
    usual = encode({"_id": 1, "x": "abcd", "y": {"z": [1.5, "é"]}})
    twice = encode({"_id": 1, "x": 1, "y": 2}).replace(b"y", b"x")
    odd = [
        usual.replace(b"abcd", b"a\xff\xfed"),
        usual.replace("é".encode(), b"\xe9\xe9"),
        twice,
        encode({"_id": 1, "x": {"a": 1, "b": 2}}).replace(b"b", b"a"),
        encode({"_id": {"$a": 1}, "$x": 1}),
        encode({"_id": 1, **{f"f{n}": n for n in range(2 * LEAST)}}),
        encode({"_id": 1, "x": [list(range(2 * LEAST))]}),
    ]
    _same([usual] * LEAST + odd + [usual] * LEAST)
    _same([*odd, usual] * LEAST)


@pytest.mark.parametrize("cut", [b"\x10", b"\x02\xff\xff\xff\xff", b"\x05\xf0", b"\x0b"])
def test_invalid_bson_is_an_error(cut: bytes) -> None:
    usual = encode({"_id": 1, "x": "abcd"})
    broken = encode({"_id": 1, "x": "abcdefgh"}).replace(
        b"\x02x\0\x09\0\0\0", (cut[:1] + b"x\0" + cut[1:]).ljust(7, b"\xff")
    )
    with pytest.raises(BSONError):
        DocumentBatch([usual] * LEAST + [broken] * LEAST)


# Its coefficient has more digits than the format allows, so the value is zero.
_OUTSIDE = Decimal128.from_bid(bytes.fromhex("225634b43f264e87c087adbe09edffdf"))
ALIKE: list[tuple[list[Any], str]] = [
    ([1, Int64(1), 1.0, Decimal128("1"), Decimal128("1.00"), Decimal128("10E-1")], '{"$numberInt":"1"}'),
    ([0, -0.0, Decimal128("-0"), Decimal128("0E+100"), _OUTSIDE], '{"$numberInt":"0"}'),
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
def test_row_keys_distinguish_values_but_not_numeric_types(identifiers: list[Any], spelled: str) -> None:
    keys = {document_keys.row_key(elements.value(encode({"_id": identifier}), b"_id")) for identifier in identifiers}
    assert keys == {f"[{spelled}]"}


def test_invalid_utf8_bytes_are_escaped() -> None:
    raw = encode({"x": "abcd"}).replace(b"abcd", b"a\xff\xfed")
    assert documents.parse(raw) == {"x": r"a\xff\xfed"}


def test_fields_next_to_one_unsupported_by_libbson_keep_their_types() -> None:
    symbol, text = (0x0E, b"\2\0\0\0x\0"), (0x02, b"\3\0\0\0a\xff\0")
    raw = elements.document([(b"_id", symbol), (b"x", text), (b"\xfe", symbol)])
    assert documents.parse(raw) == {"_id": {"$symbol": "x"}, "x": r"a\xff", r"\xfe": "x"}
    key = elements.document([(b"_id", symbol)])
    assert DocumentBatch([raw]).row_keys() == DocumentBatch([key]).row_keys()


def test_a_document_that_looks_like_a_number_is_unchanged() -> None:
    assert documents.parse(encode({"x": {"$numberDouble": " 1_0 "}})) == {"x": {"$numberDouble": " 1_0 "}}


def test_positions_and_timestamps_are_the_same_numbers() -> None:
    position = cluster_time.to_position(Timestamp(1_700_000_000, 7))
    assert cluster_time.to_timestamp(position) == Timestamp(1_700_000_000, 7)
    assert cluster_time.token_position(f"82{position:016X}2B0429296E1404") == position
    assert cluster_time.format_position(position) == "2023-11-14T22:13:20Z+7"


@pytest.mark.parametrize("token", [None, "81" + "0" * 16, "82", b"82"])
def test_a_token_of_an_unknown_form_is_refused(token: object) -> None:
    with pytest.raises(ValueError, match="not a resume token"):
        cluster_time.token_position(token)
