"""Row keys of documents: equal exactly for `_id`s that MongoDB compares as equal, whichever way they are decoded."""

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from bson import Decimal128, Int64, decode
from bson.errors import InvalidBSON
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.mongodb.bson import document_keys, elements
from ingest.sources.mongodb.bson.documents import DocumentBatch
from ingest.sources.mongodb.bson.elements import Value
from ingest.sources.mongodb.bson.vector_walk import LEAST
from tests.unit.mongo_ids import GROUPS, WRAPPERS, array, document, old_binary, symbol, text, value

_NAMES = [b"a", b"b", b"", b"$numberInt", b"$bytes", b"$document", b"$code", b"$scope", b"a\xff", b"a\\xff"]
_TEXTS = [b"a", b"5", b"1", b"61ff", b"a\xff", b"a\\xff", b"", b"\0", b'{"$numberInt":"5"}', b"YQ=="]
_numbers = st.one_of(
    st.sampled_from([0, -0.0, 5, 5.0, 0.1, 2.0**53, Int64(2**53 + 1), float("nan"), float("inf")]),
    st.sampled_from(["-0", "5.0", "0.1", "9007199254740993", "NaN", "-NaN", "Infinity", "1E-6176"]).map(Decimal128),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(),
).map(value)
_others = st.sampled_from(
    [
        *(value(None), value(True), value(False), (0x06, b""), value(b"a"), old_binary(1, b"a"), old_binary(9, b"a")),
        *((0x0B, b"a\0im\0"), (0x0B, b"a\0mi\0"), (0x0D, text(b"a")[1]), (0x0C, text(b"a")[1] + bytes(12))),
    ]
)
_texts = st.builds(text, st.sampled_from(_TEXTS) | st.binary(max_size=2), st.sampled_from([0x02, 0x0E]))


def _holders(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    named = st.lists(st.tuples(st.sampled_from(_NAMES), inner), max_size=3)
    return st.one_of(named.map(lambda each: document(*each)), named.map(lambda each: array(*each)))


_values = st.recursive(st.one_of(_texts, _numbers, _others), _holders, max_leaves=5)


def _members(raw_value: Value) -> Iterator[tuple[bytes, Value]]:
    for each in elements.elements(raw_value[1]):
        yield each.name, (each.kind, raw_value[1][each.start : each.end])


def _exact(raw_value: Value) -> Decimal:
    number = decode(elements.document([(b"n", raw_value)]))["n"]
    return number.to_decimal() if isinstance(number, Decimal128) else Decimal(number)


def equal(first: Value, second: Value) -> bool:
    """Whether MongoDB compares two `_id`s as equal, by the documented comparison of its server."""
    kinds = {first[0], second[0]}
    if kinds <= {0x01, 0x10, 0x12, 0x13}:
        left, right = _exact(first), _exact(second)
        return left.is_nan() == right.is_nan() and (left.is_nan() or left == right)
    if kinds <= {0x02, 0x0E}:
        return first[1] == second[1]
    if len(kinds) > 1 or not kinds & {0x03, 0x04}:
        return first == second
    first_members, second_members = list(_members(first)), list(_members(second))
    return len(first_members) == len(second_members) and all(
        (kinds == {0x04} or name == named) and equal(left, right)
        for (name, left), (named, right) in zip(first_members, second_members, strict=True)
    )


@given(_values, _values)
def test_keys_are_equal_exactly_where_mongodb_compares_values_equal(first: Value, second: Value) -> None:
    assert (document_keys.row_key(first) == document_keys.row_key(second)) == equal(first, second)


@given(st.lists(_values, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_key_is_the_same_decoded_alone_and_in_a_batch(ids: list[Value], order: random.Random) -> None:
    ids = ids * (LEAST + 5)
    order.shuffle(ids)
    raw = [elements.document([(b"_id", each), (b"v", value("x"))]) for each in ids]
    assert DocumentBatch(raw).row_keys().to_pylist() == [document_keys.row_key(each) for each in ids]
    assert DocumentBatch(raw[:1]).row_keys().to_pylist() == [document_keys.row_key(ids[0])]


def test_each_group_of_equal_ids_has_its_own_key() -> None:
    keys = [{document_keys.row_key(each) for each in group} for group in GROUPS]
    assert [len(each) for each in keys] == [1] * len(GROUPS)
    assert len(set().union(*keys)) == len(GROUPS)
    raw = [elements.document([(b"_id", each)]) for group in GROUPS for each in group]
    for documents in (raw, raw * LEAST):
        assert set(DocumentBatch(documents).row_keys().to_pylist()) == set().union(*keys)


@pytest.mark.parametrize(("lookalike", "wrapped"), WRAPPERS)
def test_a_document_that_looks_like_a_value_has_its_own_key(lookalike: Value, wrapped: Value) -> None:
    assert document_keys.row_key(lookalike) != document_keys.row_key(wrapped)


PLAIN: list[tuple[Any, str]] = [
    (value("a"), '"a"'),
    (symbol(b"a"), '"a"'),
    (text(b"a\xff"), '{"$bytes":"61ff"}'),
    (document((b"a", value(1)), (b"$b", value("x"))), '{"a":{"$numberInt":"1"},"$b":"x"}'),
    (document((b"a", value(1)), (b"a", value("x"))), '{"$document":[["a",{"$numberInt":"1"}],["a","x"]]}'),
    (document((b"\xff", value("x"))), '{"$document":[[{"$bytes":"ff"},"x"]]}'),
    (document((b"$oid", value("x"))), '{"$document":[["$oid","x"]]}'),
    (document((b"$ref", value("c")), (b"$id", value("x"))), '{"$ref":"c","$id":"x"}'),
    (old_binary(9, b"a"), '{"$oldBinary":"CQAAAGE="}'),
    (old_binary(1, b"a"), '{"$binary":{"base64":"YQ==","subType":"02"}}'),
]


@pytest.mark.parametrize(("identifier", "shown"), PLAIN, ids=[shown for _, shown in PLAIN])
def test_a_key_is_extended_json_except_where_that_is_ambiguous(identifier: Value, shown: str) -> None:
    assert document_keys.row_key(identifier) == f"[{shown}]"


def test_a_document_of_the_maximum_depth_has_a_key() -> None:
    deep = value(1)
    for _ in range(200):
        deep = document((b"a", deep))
    assert document_keys.row_key(deep).count('{"a":') == 200


@pytest.mark.parametrize("broken", [(0x42, b""), (0x02, b"\2\0\0\0a"), (0x08, b"\2"), (0x01, b"abc"), (0x05, b"\0")])
def test_invalid_bson_has_no_key(broken: Value) -> None:
    with pytest.raises(InvalidBSON):
        document_keys.row_key(broken)
