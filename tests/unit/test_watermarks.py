"""The watermarks that a release leaves in `core.model_watermarks`."""

import json
from typing import Any

import sqlglot

from dbt.adapters.tidemark.watermarks import Watermark, add_watermarks, newest_release
from tests.unit.calling import Macros


def row(model: str, source: str, release_id: int, **values: Any) -> dict[str, Any]:
    """A row of `core.model_watermarks`; its checkpoint and position show its release."""
    defaults = {
        "definition_hash": None,
        "columns": "[]",
        "view_tables": None,
        "last_op": None,
        "has_integer_keys": None,
    }
    position = {"checkpoint_id": release_id, "position": 10 * release_id}
    return {"model": model, "source": source, "release_id": release_id, **position, **defaults, **values}


def test_the_newest_release_of_a_model_and_source_wins_in_any_order() -> None:
    watermarks = add_watermarks({}, [row("events", "shop", 3), row("events", "shop", 2), row("events", "crm", 1)])
    assert watermarks == {"events": {"shop": Watermark(3, 30, 3), "crm": Watermark(1, 10, 1)}}
    assert newest_release(watermarks) == 3


def test_models_without_a_newer_watermark_keep_theirs() -> None:
    before = add_watermarks({}, [row("events", "shop", 1), row("row_state", "shop", 1)])
    after = add_watermarks(before, [row("events", "shop", 2)])
    assert after == {"events": {"shop": Watermark(2, 20, 2)}, "row_state": {"shop": Watermark(1, 10, 1)}}
    assert before["events"]["shop"].release_id == 1


def test_a_definition_loses_sources_that_its_last_release_lacks() -> None:
    both = [row("orders", source, 1, definition_hash="h1", columns='["id"]') for source in ("shop", "crm")]
    edited = row("orders", "crm", 2, definition_hash="h2", columns='["id", "v"]', view_tables='{"stg": "crm.t"}')
    assert add_watermarks(add_watermarks({}, both), [edited]) == {
        "orders": {"crm": Watermark(2, 20, 2, "h2", ["id", "v"], {"stg": "crm.t"})}
    }


def test_a_lake_without_releases_has_no_watermarks() -> None:
    assert add_watermarks({}, []) == {}
    assert newest_release({}) == 0


def test_the_written_watermarks_have_a_row_each_with_quoted_values() -> None:
    columns, view_tables = ["it's", 'a "b"', "c\\d", "ü"], {"stg": "shop.public.o'k"}
    orders = {source: Watermark(2, 20, 2, "h'2", columns, view_tables, 40, True) for source in ("shop", "crm")}
    macros: Any = Macros("publish", "sql_helpers", tojson=json.dumps)
    statement = macros.write_watermarks({"events": {"shop": Watermark(3, 30, 3)}, "orders": orders})
    values = sqlglot.parse_one(statement, dialect="spark").find(sqlglot.exp.Values)
    assert values is not None
    rows = [[literal.name for literal in row.expressions] for row in values.expressions]
    assert [row[:4] for row in rows] == [
        ["events", "shop", "3", "30"],
        ["orders", "shop", "2", "20"],
        ["orders", "crm", "2", "20"],
    ]
    assert [(row[4], json.loads(row[5]), row[6], json.loads(row[7])) for row in rows[1:]] == [
        ("h'2", columns, "2", view_tables)
    ] * 2
