"""Staging views from a catalogue: their text, their names, and what `write` leaves alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt_extractor import (  # type: ignore[import-untyped]
    ExtractionError,
    py_extract_from_source,
)
from jinja2 import Environment
from pydantic import SecretStr

from ingest.config import PostgresSource
from ingest.lake.tables import Column
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.codegen import staging_models
from ingest.postgres.types import cast
from ingest.stagingfiles import write
from ingest.viewnames import column_names, jinja_safe, model_names, quoted

SHOP = PostgresSource(name="shop", dsn=SecretStr("host=db dbname=shop"), tables=("*.*",))


def table(
    name: str,
    columns: dict[str, str] | None = None,
    schema: str = "public",
    key: tuple[str, ...] | None = ("id",),
) -> CatalogTable:
    return CatalogTable(
        oid=1,
        schema=schema,
        name=name,
        identity="d",
        key_columns=key,
        columns=tuple(
            Column(column, number, kind)
            for number, (column, kind) in enumerate((columns or {"id": "bigint"}).items(), 1)
        ),
        leaves=(),
        sizes=(),
        attributes=9,
        filled=frozenset(),
        owned=True,
    )


def test_a_view_renames_and_casts() -> None:
    columns = {"id": "bigint", "status": "text", "placed_at": "timestamp(3) with time zone"}
    files = staging_models(SHOP, [table("orders", columns)], {})
    assert (
        files["stg_shop__orders.sql"]
        == """\
{{ config(meta={'source': 'shop', 'table': 'public.orders'}) }}

select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns as _columns,
    cast(columns['id'] as bigint) as id,
    columns['status'] as status,
    {{ tidemark.pg_timestamp(tidemark.field('placed_at')) }} as placed_at
from {{ ref('row_state') }}
where source = 'shop' and table_name = 'public.orders' and not deleted
"""
    )


def test_a_view_without_odd_types_does_not_bring_the_texts() -> None:
    files = staging_models(SHOP, [table("t", {"id": "integer"})], {})
    assert "_columns" not in files["stg_shop__t.sql"] + files["stg_shop__t.yml"]


def test_the_yml_describes_every_column_of_the_view_by_its_type() -> None:
    files = staging_models(SHOP, [table("orders", {"id": "bigint", "day": "date"})], {})
    (model,) = yaml.safe_load(files["stg_shop__orders.yml"])["models"]
    assert model["name"] == "stg_shop__orders"
    described = {column["name"]: column["description"] for column in model["columns"]}
    assert list(described) == ["_row_key", "_checkpoint_id", "_columns", "id", "day"]
    assert described["id"] == "bigint"
    assert described["day"] == "date; NULL for infinity and BC, whose text is in _columns"


def test_equal_rows_of_a_table_without_a_key_get_a_key_each() -> None:
    text = staging_models(SHOP, [table("log", key=None)], {})["stg_shop__log.sql"]
    assert "    if(copy = 1, row_key, row_key || '#' || copy) as _row_key,\n" in text
    assert "\n    lateral view explode(sequence(1, copies)) as copy\nwhere " in text


@pytest.mark.parametrize(
    ("postgres", "spark"),
    [
        ("boolean", "cast(columns['c'] as boolean)"),
        ("smallint", "cast(columns['c'] as smallint)"),
        ("integer", "cast(columns['c'] as int)"),
        ("oid", "cast(columns['c'] as bigint)"),
        ("real", "{{ tidemark.pg_real(tidemark.field('c')) }}"),
        ("double precision", "{{ tidemark.pg_double(tidemark.field('c')) }}"),
        ("numeric(10,2)", "cast(nullif(columns['c'], 'NaN') as decimal(10, 2))"),
        ("numeric(38,38)", "cast(nullif(columns['c'], 'NaN') as decimal(38, 38))"),
        ("numeric(5,-2)", "cast(nullif(columns['c'], 'NaN') as decimal(7, 0))"),
        ("numeric(2,4)", "cast(nullif(columns['c'], 'NaN') as decimal(4, 4))"),
        ("numeric(39,0)", "columns['c']"),
        ("numeric(37,-2)", "columns['c']"),
        ("numeric(2,40)", "columns['c']"),
        ("numeric", "columns['c']"),
        ("date", "{{ tidemark.pg_date(tidemark.field('c')) }}"),
        ("timestamp without time zone", "{{ tidemark.pg_timestamp_ntz(tidemark.field('c')) }}"),
        ("bytea", "{{ tidemark.pg_bytea(tidemark.field('c')) }}"),
        ("integer[]", "columns['c']"),
        ("numeric(10,2)[]", "columns['c']"),
        ("character(5)", "columns['c']"),
        ('public."integer"', "columns['c']"),
        ("public.price", "cast(nullif(columns['c'], 'NaN') as decimal(8, 2))"),
    ],
)
def test_types(postgres: str, spark: str) -> None:
    domains = {"public.price": "public.money2", "public.money2": "numeric(8,2)"}
    assert cast("c", postgres, domains).sql == spark


def test_columns_that_differ_by_capitals_get_numbers_and_lower_case_stays() -> None:
    names = column_names(["ID", "id", "id_2", "Id", "_ROW_KEY", "_row_key", "_columns"])
    assert names == {
        "ID": "ID_3",
        "id": "id",
        "id_2": "id_2",
        "Id": "Id_4",
        "_ROW_KEY": "_ROW_KEY_2",
        "_row_key": "_row_key_3",
        "_columns": "_columns_2",
    }


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("status", "status"),
        ("_1", "_1"),
        ("Status", "`Status`"),
        ("order", "`order`"),
        ("1e5", "`1e5`"),
        ("a b", "`a b`"),
        ("a`b", "`a``b`"),
        ("é", "`é`"),
    ],
)
def test_names_are_quoted_where_spark_needs_it(name: str, sql: str) -> None:
    assert quoted(name) == sql


@pytest.mark.parametrize("text", ["{{ 1/0 }}", "{% if %}", "{# x #}", "{{{", "a{b}c", "{", "}}"])
def test_jinja_renders_names_as_they_are(text: str) -> None:
    assert Environment(autoescape=True).from_string(jinja_safe(text)).render() == text


def test_names_of_models_are_plain_and_never_collide() -> None:
    tables = {
        "public.Orders": "Orders",
        "public.orders": "orders",
        "a.b": "a__b",
        "public.a__b": "a__b",
        "my schema.Ünïcode {{x}}": "my schema__Ünïcode {{x}}",
    }
    names = model_names("shop", tables)
    assert names == model_names("shop", dict(reversed(tables.items())))
    assert {table: name for name, table in names.items()} == {
        "public.orders": "stg_shop__orders",
        "public.Orders": "stg_shop__orders_43fd82",
        "a.b": "stg_shop__a__b",
        "public.a__b": "stg_shop__a__b_ac921f",
        "my schema.Ünïcode {{x}}": "stg_shop__my_schema___n_code___x__",
    }


def test_a_name_that_no_file_could_have_is_cut_and_told_apart() -> None:
    tables = {f"public.{'t' * 240}{number}": f"{'t' * 240}{number}" for number in range(3)}
    names = model_names("shop", tables)
    assert sorted(names.values()) == sorted(tables)
    assert max(map(len, names)) < 250


def test_odd_names_are_pardoned_to_sqlfluff_and_plain_ones_need_no_pardon() -> None:
    odd = table("t'\\", {"id": "bigint", "a b": "text", "x" * 63: "numeric(1,1)"})
    head = staging_models(SHOP, [odd], {})["stg_shop__t__.sql"].splitlines()
    assert head[0] == r"{{ config(meta={'source': 'shop', 'table': 'public.t\'\\' ~ ''}) }}"
    assert head[1] == "-- noqa: disable=CV10,LT05,RF05,RF06"
    assert "noqa" not in staging_models(SHOP, [table("t")], {})["stg_shop__t.sql"]


@pytest.mark.parametrize("name", ["plain", "{{ x }}", 'a"b'])
def test_dbt_finds_the_table_without_rendering(name: str) -> None:
    text = next(t for f, t in staging_models(SHOP, [table(name)], {}).items() if f.endswith("sql"))
    meta = {"source": "shop", "table": f"public.{name}"}
    assert py_extract_from_source(text)["configs"] == [("meta", meta)]


@pytest.mark.parametrize("name", ["it's", "a\\b"])
def test_dbt_renders_where_it_would_take_a_backslash_as_it_stands(name: str) -> None:
    text = next(t for f, t in staging_models(SHOP, [table(name)], {}).items() if f.endswith("sql"))
    with pytest.raises(ExtractionError):
        py_extract_from_source(text)
    seen: dict[str, Any] = {}
    Environment(autoescape=True).from_string(text).render(config=seen.update, ref=str)
    assert seen["meta"]["table"] == f"public.{name}"


def test_write_leaves_what_a_person_has_edited(tmp_path: Path) -> None:
    files = staging_models(SHOP, [table("orders")], {})
    sql, yml = tmp_path / "stg_shop__orders.sql", tmp_path / "stg_shop__orders.yml"
    assert write(files, tmp_path).written == (sql, yml)

    sql.write_text("select 1")
    again = write(files, tmp_path)
    assert (again.written, again.unchanged, again.kept) == ((), (yml,), (sql,))
    assert sql.read_text() == "select 1"

    assert write(files, tmp_path, force=True).written == (sql,)
    assert sql.read_text() == files[sql.name]
