"""Staging views from a catalog: their text, their names, and the files that `write` does not change."""

import re
import shlex
from collections.abc import Mapping, Sequence
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

from ingest.codegen.staging_files import diff_views, write_views
from ingest.codegen.staging_record import Record, parse_columns, read_record
from ingest.codegen.view_names import column_names, escape_jinja, model_names, quote_identifier
from ingest.codegen.view_sql import WIDE
from ingest.config.sources_file import PostgresSource, is_selected
from ingest.lake.source_tables import Column
from ingest.sources.postgres import table_views
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_types import cast

SHOP = PostgresSource(name="shop", dsn=SecretStr("host=db dbname=shop"), tables=("*.*",))


def staging_models(
    source: PostgresSource, tables: Sequence[CatalogTable], domains: Mapping[str, str], record: Record | None = None
) -> dict[str, str]:
    """The text of each file by name."""
    views = table_views.staging_models(source, tables, domains, record or Record())
    return {f"{view.model}.{end}": text for view in views for end, text in (("sql", view.sql), ("yml", view.yml))}


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
        partitions=(),
        partition_sizes=(),
        attributes=9,
        columns_with_default=frozenset(),
        is_owned=True,
    )


def test_a_view_renames_and_casts() -> None:
    columns = {"id": "bigint", "status": "text", "placed_at": "timestamp(3) with time zone"}
    files = staging_models(SHOP, [table("orders", columns)], {})
    assert (
        files["stg_shop__orders.sql"]
        == """\
{{ config(materialized='view', meta={'source': 'shop', 'table': 'public.orders'}) }}

-- depends_on: {{ source('shop', 'orders') }}
select
    row_key as _row_key,
    checkpoint_id as _checkpoint_id,
    columns as _columns,
    cast(columns['id'] as bigint) as id,
    columns['status'] as status,
    {{ tidemark.pg_timestamp(tidemark.field('placed_at')) }} as placed_at
from {{ ref('tidemark', 'row_state') }}
where source = 'shop' and table_name = 'public.orders' and not deleted
"""
    )


def test_a_wide_view_reads_columns_by_position() -> None:
    columns = {"id": "bigint", "it's": "text", "day": "date"} | {f"c{number}": "text" for number in range(WIDE)}
    text = staging_models(SHOP, [table("orders", columns)], {})["stg_shop__orders.sql"]
    assert "\n{%- set names = [\n    'id',\n    'it\\'s',\n    'day',\n    'c0',\n" in text
    assert f"    'c{WIDE - 1}',\n] %}}\n{{%- set texts = tidemark.texts_by_position(names) %}}\nselect\n" in text
    assert "    cast({{ texts['id'] }} as bigint) as id,\n    {{ texts['it\\'s'] }} as `it's`,\n" in text
    assert "    {{ tidemark.pg_date(texts['day']) }} as day,\n" in text
    assert "\nfrom {{ tidemark.with_ordered_texts(ref('tidemark', 'row_state'), names) }}\nwhere source = " in text
    assert [*parse_columns(text).values()] == [(name,) for name in columns]


def test_a_view_without_unusual_types_omits_the_columns_map() -> None:
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


def test_each_table_is_a_dbt_source_with_its_columns_and_freshness() -> None:
    comments = {(1, 0): "What customers bought.", (1, 2): "When it was paid"}
    orders = table("orders", {"id": "bigint", "paid": "date"})
    (view,) = table_views.staging_models(SHOP, [orders], {}, Record(), comments)
    content = yaml.safe_load(view.yml)
    (source,) = content["sources"]
    (described,) = source["tables"]
    assert (source["name"], described["name"], described["identifier"]) == ("shop", "orders", "wal_events")
    assert source["description"] == "The source `shop` of `sources.yml`."
    assert described["description"].startswith("What customers bought. `public.orders` of source `shop`")
    assert content["models"][0]["description"].startswith("What customers bought. The rows of `public.orders`")
    columns = {column["name"]: column["description"] for column in described["columns"]}
    assert columns == {
        "id": "bigint",
        "paid": "When it was paid (date; NULL for infinity and BC, whose text is in _columns)",
    }
    assert "where source = 'shop'" in described["config"]["loaded_at_query"]
    assert set(described["config"]["freshness"]) == {"warn_after", "error_after"}


@pytest.mark.parametrize(
    ("columns", "key", "tested"),
    [
        ({"id": "int", "v": "int"}, ("id",), "id"),
        ({"Id": "int"}, ("Id",), "_row_key"),
        ({"a": "int", "b": "int"}, ("a", "b"), "_row_key"),
        ({"a": "int"}, None, "_row_key"),
    ],
)
def test_the_key_has_tests(columns: dict[str, str], key: tuple[str, ...] | None, tested: str) -> None:
    (model,) = yaml.safe_load(staging_models(SHOP, [table("t", columns, key=key)], {})["stg_shop__t.yml"])["models"]
    tests = {column["name"]: [*map(next, map(iter, column.get("data_tests", ())))] for column in model["columns"]}
    assert {name: names for name, names in tests.items() if names} == {tested: ["unique", "not_null"]}


def test_equal_rows_of_a_table_without_a_key_get_different_keys() -> None:
    text = staging_models(SHOP, [table("log", key=None)], {})["stg_shop__log.sql"]
    assert "    if(copy = 1, row_key, row_key || '#' || copy) as _row_key,\n" in text
    assert "\n    lateral view explode(sequence(1, multiplicity)) as copy\nwhere " in text


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
def test_a_column_is_cast_to_its_spark_type(postgres: str, spark: str) -> None:
    domains = {"public.price": "public.money2", "public.money2": "numeric(8,2)"}
    assert cast("c", postgres, domains).sql == spark


def test_columns_that_differ_by_case_get_numbers() -> None:
    names = column_names([(name,) for name in ("ID", "id", "id_2", "Id", "_ROW_KEY", "_row_key", "_columns")])
    assert {column: name for (column,), name in names.items()} == {
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
def test_names_are_quoted_if_spark_requires_it(name: str, sql: str) -> None:
    assert quote_identifier(name) == sql


@pytest.mark.parametrize("text", ["{{ 1/0 }}", "{% if %}", "{# x #}", "{{{", "a{b}c", "{", "}}"])
def test_jinja_renders_names_unchanged(text: str) -> None:
    assert Environment(autoescape=True).from_string(escape_jinja(text)).render() == text


def test_model_names_are_plain_and_unique() -> None:
    tables = {
        "public.Orders": ["Orders"],
        "public.orders": ["orders"],
        "a.b": ["a__b"],
        "public.a__b": ["a__b"],
        "my schema.Ünïcode {{x}}": ["my schema__Ünïcode {{x}}"],
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


def test_the_name_of_a_users_own_model_is_not_taken(tmp_path: Path) -> None:
    own = tmp_path / "stg_shop__orders.sql"
    own.write_text("select 1 as id")
    (view,) = table_views.staging_models(SHOP, [table("orders")], {}, read_record(tmp_path))
    assert view.model.startswith("stg_shop__orders_")
    write_views([view], read_record(tmp_path), lambda _: "", tmp_path, force=True)
    assert own.read_text() == "select 1 as id"
    assert sorted(path.stem for path in tmp_path.glob("*.yml")) == [view.model]


def test_a_name_too_long_for_a_file_is_shortened_and_unique() -> None:
    tables = {f"public.{'t' * 240}{number}": [f"{'t' * 240}{number}"] for number in range(3)}
    names = model_names("shop", tables)
    assert sorted(names.values()) == sorted(tables)
    assert max(map(len, names)) < 250


def test_only_unusual_names_have_a_sqlfluff_exception() -> None:
    odd = table("t'\\", {"id": "bigint", "a b": "text", "x" * 63: "numeric(1,1)"})
    head = staging_models(SHOP, [odd], {})["stg_shop__t__.sql"].splitlines()
    assert head[0] == r"{{ config(materialized='view', meta={'source': 'shop', 'table': 'public.t\'\\' ~ ''}) }}"
    assert head[1] == "-- noqa: disable=CV10,LT05,RF05,RF06"
    assert "noqa" not in staging_models(SHOP, [table("t")], {})["stg_shop__t.sql"]
    long_name = staging_models(SHOP, [table("t" * 63)], {})[f"stg_shop__{'t' * 63}.sql"]
    assert long_name.startswith("{{ config(\n    materialized='view',\n    meta={")


@pytest.mark.parametrize("name", ["plain", "{{ x }}", 'a"b'])
def test_dbt_finds_the_table_without_rendering(name: str) -> None:
    text = next(t for f, t in staging_models(SHOP, [table(name)], {}).items() if f.endswith("sql"))
    meta = {"source": "shop", "table": f"public.{name}"}
    assert py_extract_from_source(text)["configs"] == [("materialized", "view"), ("meta", meta)]


@pytest.mark.parametrize("name", ["it's", "a\\b"])
def test_dbt_renders_texts_with_a_backslash(name: str) -> None:
    text = next(t for f, t in staging_models(SHOP, [table(name)], {}).items() if f.endswith("sql"))
    with pytest.raises(ExtractionError):
        py_extract_from_source(text)
    seen: dict[str, Any] = {}
    Environment(autoescape=True).from_string(text).render(config=seen.update, ref=lambda *_: "", source=lambda *_: "")
    assert seen["meta"]["table"] == f"public.{name}"


def test_write_keeps_edited_files(tmp_path: Path) -> None:
    (view,) = table_views.staging_models(SHOP, [table("orders")], {}, Record())
    sql, yml = tmp_path / "stg_shop__orders.sql", tmp_path / "stg_shop__orders.yml"

    def written(*, force: bool = False) -> tuple[list[str], int]:
        done = write_views([view], read_record(tmp_path), lambda _: "", tmp_path, force=force)
        return done.lines, done.unchanged

    assert written() == ([f"wrote {sql}", f"wrote {yml}"], 0)
    sql.write_text("select 1")
    assert written() == (
        [f"kept {sql}, which differs; `tidemark codegen --force public.orders` overwrites it"],
        1,
    )
    assert sql.read_text() == "select 1"
    assert written(force=True) == ([f"wrote {sql}"], 1)
    assert sql.read_text() == view.sql


def test_the_advice_to_overwrite_names_one_view(tmp_path: Path) -> None:
    web = SHOP.model_copy(update={"name": "web"})
    views = [
        view
        for view_source in (SHOP, web)
        for view in table_views.staging_models(view_source, [table("a*"), table("abc")], {}, Record())
    ]
    write_views(views, Record(), lambda _: "", tmp_path)
    for view in views:
        file = tmp_path / f"{view.model}.sql"
        file.write_text(file.read_text() + "-- edited\n")
    lines = write_views(views, read_record(tmp_path), lambda _: "", tmp_path).lines
    commands = [shlex.split(line.split("`")[1]) for line in lines]
    assert len(commands) == len(views)
    for view, (*_, source, force, pattern) in zip(views, commands, strict=True):
        assert force == "--force"
        forced = [
            shown_view
            for shown_view in views
            if is_selected(shown_view.table, [pattern]) and f"'{source}'" in shown_view.sql
        ]
        assert forced == [view]


def test_a_view_that_spark_rejects_replaces_no_file(tmp_path: Path) -> None:
    (view,) = table_views.staging_models(SHOP, [table("orders")], {}, Record())
    sql, yml = tmp_path / "stg_shop__orders.sql", tmp_path / "stg_shop__orders.yml"
    sql.write_text("select 1")
    done = write_views([view], read_record(tmp_path), lambda _: "it is bad", tmp_path, force=True)
    assert (done.refused, done.lines) == (
        ["public.orders"],
        ["skipped public.orders: Spark rejects its view (it is bad)"],
    )
    assert sql.read_text() == "select 1"
    assert not yml.exists()


def test_the_difference_is_shown_without_writing(tmp_path: Path) -> None:
    (view,) = table_views.staging_models(SHOP, [table("orders")], {}, Record())
    sql = tmp_path / "stg_shop__orders.sql"
    sql.write_text(view.sql.replace("as id", "as order_id"))
    lines = list(diff_views([view], read_record(tmp_path), tmp_path))
    assert lines[:2] == [f"--- {sql}", f"+++ {sql}"]
    assert "-    cast(columns['id'] as bigint) as order_id" in lines
    assert "+    cast(columns['id'] as bigint) as id" in lines
    assert lines[lines.index("--- /dev/null") + 1] == f"+++ {sql.with_suffix('.yml')}"
    assert list(tmp_path.iterdir()) == [sql]


def written_names(folder: Path, *tables: CatalogTable, source: PostgresSource = SHOP) -> dict[str, str]:
    """The name of each table's view, after writing these to the existing files."""
    views = table_views.staging_models(source, tables, {}, read_record(folder))
    write_views(views, read_record(folder), lambda _: "", folder)
    return {view.table: view.model for view in views}


def test_a_table_keeps_its_name_in_use(tmp_path: Path) -> None:
    lines, order_lines = table("order__lines"), table("lines", schema="order")
    assert written_names(tmp_path, lines) == {"public.order__lines": "stg_shop__order__lines"}
    both = {"public.order__lines": "stg_shop__order__lines", "order.lines": "stg_shop__order__lines_615bce"}
    assert written_names(tmp_path, order_lines, lines) == both
    # Dropped, or not selected any more: no other table gets the name.
    assert written_names(tmp_path, order_lines) == {"order.lines": both["order.lines"]}
    # The other table's own name is free now, but it keeps its current one.
    for file in tmp_path.glob("stg_shop__order__lines.*"):
        file.unlink()
    assert written_names(tmp_path, lines, order_lines) == both


def test_a_source_keeps_its_names_in_use(tmp_path: Path) -> None:
    other = SHOP.model_copy(update={"name": "shop__eu"})
    assert written_names(tmp_path, table("c", schema="eu")) == {"eu.c": "stg_shop__eu__c"}
    (name,) = written_names(tmp_path, table("c"), source=other).values()
    assert re.fullmatch("stg_shop__eu__c_[0-9a-f]{6}", name)


def test_a_manually_chosen_name_in_capitals_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "STG_SHOP__T.sql").write_text("{{ config(meta={'source': 'shop', 'table': 'public.other'}) }}")
    (name,) = written_names(tmp_path, table("t")).values()
    assert re.fullmatch("stg_shop__t_[0-9a-f]{6}", name)


def test_a_moved_view_is_written_in_its_new_folder(tmp_path: Path) -> None:
    written_names(tmp_path, table("t"))
    (tmp_path / "sub").mkdir()
    for file in list(tmp_path.glob("*.*")):
        file.rename(tmp_path / "sub" / file.name)
    views = table_views.staging_models(SHOP, [table("t", {"id": "bigint", "n": "text"})], {}, read_record(tmp_path))
    done = write_views(views, read_record(tmp_path), lambda _: "", tmp_path, force=True)
    assert done.lines == [f"wrote {tmp_path}/sub/stg_shop__t.sql", f"wrote {tmp_path}/sub/stg_shop__t.yml"]


@pytest.mark.parametrize(
    ("sql", "yml"),
    [
        ("{{ config(materialized='view', meta={'source': 'shop', 'table': 'public.\\\\x' ~ ''}) }} select 1", ""),
        ("select {{ do_something() }}", "models: [{name: v, config: {meta: {source: shop, table: 'public.\\x'}}}]"),
        ("select 1", "models: [{name: v, meta: {source: shop, table: 'public.\\x'}}]"),
    ],
)
def test_the_record_is_parsed_as_by_dbt(tmp_path: Path, sql: str, yml: str) -> None:
    (tmp_path / "v.sql").write_text(sql)
    (tmp_path / "any.yml").write_text(yml)
    assert read_record(tmp_path).tables == {"v": ("shop", "public.\\x")}


@pytest.mark.parametrize(
    "text", ["{% snapshot %}", "{{ config(meta=var('x')) }}", "{{ config(meta={'source': 1}) }}", ""]
)
def test_a_file_without_a_table_is_not_recorded(tmp_path: Path, text: str) -> None:
    (tmp_path / "v.sql").write_text(text)
    (tmp_path / "any.yml").write_text("[")
    assert read_record(tmp_path).tables == {}


def test_a_column_keeps_its_name_in_use(tmp_path: Path) -> None:
    def shown(*columns: str) -> dict[str, str]:
        views = table_views.staging_models(
            SHOP, [table("t", dict.fromkeys(columns, "text"))], {}, read_record(tmp_path)
        )
        write_views(views, read_record(tmp_path), lambda _: "", tmp_path, force=True)
        text = (tmp_path / "stg_shop__t.sql").read_text()
        return {column: name for name, (column,) in parse_columns(text).items()}

    assert shown("ID", "n") == {"ID": "ID", "n": "n"}
    # A new column that sorts before it.
    assert shown("id", "ID", "n") == {"id": "id_2", "ID": "ID", "n": "n"}
    assert shown("id", "n") == {"id": "id_2", "n": "n"}


def test_the_table_of_a_view_is_read_from_its_generated_text() -> None:
    odd = ["a b", "it's", "a\\b", "{{ x }}", "{% y", "x as y,", "new\nline", "back`tick", "x.y", "😀", "a, b\nfrom c"]
    kinds = ["text", "date", "numeric(9,2)", "bigint", "bytea"]
    columns = {f"{name} {kind}": kind for name in odd for kind in kinds}
    text = staging_models(SHOP, [table("t", columns)], {})["stg_shop__t.sql"]
    assert parse_columns(text) == {name: (name,) for name in columns}


def test_an_alias_written_by_a_user_is_no_name_in_use() -> None:
    text = "select columns['a'] as id,\n coalesce(columns['b'], columns['c']) as x,\n columns['d'] as d_2\nfrom t"
    assert parse_columns(text) == {"id": ("a",), "d_2": ("d",)}
    names = column_names([("a",), ("id",), ("d",)], parse_columns(text))
    assert list(names.values()) == ["a", "id", "d_2"]
