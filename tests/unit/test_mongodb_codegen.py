"""Staging views of collections, by a sample of documents."""

from typing import Any

import pytest
import yaml
from bson import Binary, Decimal128, Int64, ObjectId, encode
from pydantic import SecretStr

from ingest.config import MongoSource
from ingest.mongodb.codegen import Field, fields, staging_models
from ingest.mongodb.documents import parse

SHOP = MongoSource(name="shop", uri=SecretStr("mongodb://h/"), collections=("*.*",))


def sampled(*documents: dict[str, Any]) -> list[Field]:
    return fields([parse(encode(each)) for each in documents])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, Int64(2)], "long"),
        ([1, 0.5], "double"),
        ([Decimal128("1")], "decimal"),
        ([True, None], "boolean"),
        ([None], "text"),
        (["a"], "string"),
        (["a", 1], "text"),
        ([[1]], "text"),
        ([ObjectId()], "object_id"),
        ([Binary(b"x")], "binary"),
        ([Binary(b"x" * 16, 4)], "uuid"),
        ([{"a": 1}, 1], "text"),
        ([{}], "text"),
        ([{f"k{n}": n for n in range(60)}], "text"),
    ],
)
def test_a_field_has_the_type_that_all_its_values_have(values: list[Any], kind: str) -> None:
    assert sampled(*({"f": value} for value in values)) == [Field(("f",), kind)]


def test_fields_of_nested_documents_are_columns_in_their_place() -> None:
    found = sampled({"a": {"b": {"c": 1}, "d": "x"}, "e": 1}, {"a": None, "f": True})
    assert [(each.path, each.kind) for each in found] == [
        (("a", "b", "c"), "long"),
        (("a", "d"), "string"),
        (("e",), "long"),
        (("f",), "boolean"),
    ]


def test_a_view_reads_by_macros_and_its_yml_says_what_is_in_it() -> None:
    files = staging_models(SHOP, {"shop.orders": [parse(encode({"_id": 1, "at": {"x": 0.5}, "select": "s"}))]})
    text = files["stg_shop__orders.sql"]
    assert "config(meta={'source': 'shop', 'table': 'shop.orders'})" in text
    assert "{{ tidemark.bson_double(tidemark.field('at', 'x')) }} as at_x" in text
    assert "{{ tidemark.bson_text(tidemark.field('select')) }} as `select`" in text
    (model,) = yaml.safe_load(files["stg_shop__orders.yml"])["models"]
    assert [column["name"] for column in model["columns"]] == [
        *("_row_key", "_checkpoint_id", "_columns"),
        *("_id", "at_x", "select"),
    ]


def test_names_that_meet_get_numbers_and_several_databases_are_named() -> None:
    one = {"a": {"b": 1}, "a_b": 2}
    files = staging_models(SHOP, {"x.t": [parse(encode(one))], "y.t": [parse(encode(one))]})
    assert sorted(files) == ["stg_shop__x__t.sql", "stg_shop__x__t.yml", "stg_shop__y__t.sql", "stg_shop__y__t.yml"]
    assert "as a_b_1" in files["stg_shop__x__t.sql"]
    assert "as a_b_2" in files["stg_shop__x__t.sql"]
