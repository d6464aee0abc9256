"""Staging views of collections, from a sample of documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from bson import Binary, Decimal128, Int64, ObjectId, encode
from pydantic import SecretStr

from ingest.codegen.staging_files import write_views
from ingest.codegen.staging_record import Record, parse_columns, read_record
from ingest.codegen.view_sql import WIDE
from ingest.config.sources_file import MongoSource
from ingest.sources.mongodb import document_views
from ingest.sources.mongodb.bson.documents import Parsed, parse
from ingest.sources.mongodb.document_views import Field, fields

SHOP = MongoSource(name="shop", uri=SecretStr("mongodb://h/"), collections=("*.*",))


def staging_models(source: MongoSource, samples: Mapping[str, Sequence[Parsed]]) -> dict[str, str]:
    """The text of each file by name."""
    views = document_views.staging_models(source, samples, Record())
    return {f"{view.model}.{end}": text for view in views for end, text in (("sql", view.sql), ("yml", view.yml))}


def sample_fields(*documents: dict[str, Any]) -> list[Field]:
    return fields([parse(encode(sample_document)) for sample_document in documents])


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
def test_a_field_has_the_common_type_of_its_values(values: list[Any], kind: str) -> None:
    assert sample_fields(*({"f": value} for value in values)) == [Field(("f",), kind)]


def test_nested_fields_are_columns_in_document_order() -> None:
    actual_fields = sample_fields({"a": {"b": {"c": 1}, "d": "x"}, "e": 1}, {"a": None, "f": True})
    assert [(sample_document.path, sample_document.kind) for sample_document in actual_fields] == [
        (("a", "b", "c"), "long"),
        (("a", "d"), "string"),
        (("e",), "long"),
        (("f",), "boolean"),
    ]


def test_a_view_uses_macros_and_its_yml_describes_the_columns() -> None:
    files = staging_models(SHOP, {"shop.orders": [parse(encode({"_id": 1, "at": {"x": 0.5}, "select": "s"}))]})
    text = files["stg_shop__orders.sql"]
    assert "config(materialized='view', meta={'source': 'shop', 'table': 'shop.orders'})" in text
    assert "{{ tidemark.bson_double(tidemark.field('at', 'x')) }} as at_x" in text
    assert "{{ tidemark.bson_text(tidemark.field('select')) }} as `select`" in text
    (model,) = yaml.safe_load(files["stg_shop__orders.yml"])["models"]
    assert [column["name"] for column in model["columns"]] == [
        *("_row_key", "_checkpoint_id", "_columns"),
        *("_id", "at_x", "select"),
    ]


def test_equal_names_get_numbers_and_several_databases_a_prefix() -> None:
    first_shop = {"a": {"b": 1}, "a_b": 2}
    files = staging_models(SHOP, {"x.t": [parse(encode(first_shop))], "y.t": [parse(encode(first_shop))]})
    assert sorted(files) == ["stg_shop__x__t.sql", "stg_shop__x__t.yml", "stg_shop__y__t.sql", "stg_shop__y__t.yml"]
    shown = {"a_b": ("a_b",), "a_b_2": ("a", "b")}
    assert parse_columns(files["stg_shop__x__t.sql"]) == shown


def test_names_in_use_stay_with_their_collections_and_fields(tmp_path: Path) -> None:
    def written(collections: dict[str, dict[str, Any]]) -> dict[str, str]:
        samples = {name: [parse(encode(sample_document))] for name, sample_document in collections.items()}
        views = document_views.staging_models(SHOP, samples, read_record(tmp_path))
        write_views(views, read_record(tmp_path), lambda _: "", tmp_path, force=True)
        return {view.table: view.model for view in views}

    first = {"x.t": {"a": {"b": 1}}}
    assert written(first) == {"x.t": "stg_shop__t"}
    # A second database, and a field whose name sorts first.
    both = {"x.t": {"a": {"b": 1}, "a_b": 2}, "y.t": {}}
    assert written(both) == {"x.t": "stg_shop__t", "y.t": "stg_shop__y__t"}
    text = (tmp_path / "stg_shop__t.sql").read_text()
    assert parse_columns(text) == {"a_b": ("a", "b"), "a_b_2": ("a_b",)}
    # A collection whose short name is another collection's long name.
    assert written({"y.t": {}, "y.y__t": {}})["y.t"] == "stg_shop__y__t"
    assert written(first) == {"x.t": "stg_shop__t"}


def test_names_in_use_stay_with_the_fields_of_wide_documents(tmp_path: Path) -> None:
    document = {"a": {"b": 1}} | {f"f{number}": number for number in range(WIDE)}
    for fields_of_sample in (document, {"a_b": 2, **document}):
        samples = {"x.t": [parse(encode(fields_of_sample))]}
        views = document_views.staging_models(SHOP, samples, read_record(tmp_path))
        write_views(views, read_record(tmp_path), lambda _: "", tmp_path, force=True)
    text = (tmp_path / "stg_shop__t.sql").read_text()
    assert "{{ tidemark.bson_long(tidemark.nested_field(texts['a'], 'b')) }} as a_b" in text
    assert {name: path for name, path in parse_columns(text).items() if name.startswith("a_b")} == {
        "a_b": ("a", "b"),
        "a_b_2": ("a_b",),
    }


def test_documents_are_flattened_to_a_depth_and_stay_json_below() -> None:
    deep: dict[str, Any] = {"value": 1}
    for _ in range(100):
        deep = {"d": deep, "n": 1}
    actual_fields = sample_fields(deep)
    assert max(len(field.path) for field in actual_fields) == 32
    (rest,) = (field for field in actual_fields if field.path == ("d",) * 32)
    assert rest.kind == "text"


def test_a_view_of_many_nested_fields_has_a_bounded_number_of_columns() -> None:
    document = {f"a{i}": {f"b{j}": {f"c{k}": 1 for k in range(20)} for j in range(20)} for i in range(20)}
    paths = [field.path for field in sample_fields(document)]
    assert len(paths) == 400
    assert {len(path) for path in paths} == {2}
    assert len(sample_fields({f"f{n}": n for n in range(1500)})) == 1500
