"""What a run does with a definition, by watermarks and inputs; and watermarks of models (design rules B6, C2, S5)."""

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.calling import Macros

INPUTS = [{"source": "shop", "table": "public.orders"}]
DEFINITION = {"name": "orders", "hash": "new", "inputs": INPUTS, "evaluation": "incremental", "view_tables": {}}
MARK = {
    "checkpoint_id": 3,
    "position": 90,
    "release_id": 7,
    "definition_hash": "new",
    "columns": ["id"],
    "view_tables": {},
}
HERE = {"checkpoint_id": 5, "position": 120}


def make_plan(
    *, mark: dict[str, Any] = MARK, waiting: bool = False, changed_at: int = 5, evaluation: str = "incremental"
) -> dict[str, Any]:
    """The plan of a definition with this watermark; its input was changed last at a checkpoint."""
    files = ("bucket/bucket_plan", "bucket/input_state", "state/model_positions")
    macros: Any = Macros(*files, should_full_refresh=lambda: False)
    macros.model_positions = lambda _: {"shop": HERE}
    macros.is_bucket_table = macros.relation_exists = lambda _: True
    macros.ops_relation = macros.invalidated_hash = lambda *_: "other"
    macros.watermarks = lambda: {"orders": {"shop": mark}}
    macros.input_states = lambda: {"shop.public.orders": {"waiting": waiting, "changed_at": changed_at}}
    plan: dict[str, Any] = macros.bucket_plan("buckets.orders", {**DEFINITION, "evaluation": evaluation})
    return plan


def test_a_definition_with_an_unready_input_waits() -> None:
    """It keeps its watermark and its published hash: changes made meanwhile are evaluated when the input is ready."""
    for mark in (MARK, {**MARK, "definition_hash": "old"}):
        plan = make_plan(mark=mark, waiting=True)
        assert not plan["evaluates"]
        assert plan["positions"] == {"shop": {"checkpoint_id": 3, "position": 90}}
        assert plan["definition_hash"] == mark["definition_hash"]
        assert plan["reason"] == "waiting for shop.public.orders"


@pytest.mark.parametrize(
    ("evaluation", "changed_at", "definition_hash", "scope", "reason"),
    [
        ("incremental", 5, "new", "changes", "inputs changed"),
        ("full", 5, "new", "all", "inputs changed"),
        ("incremental", 4, "new", "changes", "inputs changed"),
        ("incremental", 3, "new", None, "inputs unchanged"),
        ("incremental", 3, "old", "all", "definition changed"),
        ("incremental", 5, "old", "all", "definition changed"),
    ],
)
def test_a_definition_is_evaluated_when_it_or_an_input_changed(
    evaluation: str, changed_at: int, definition_hash: str, scope: str | None, reason: str
) -> None:
    plan = make_plan(mark={**MARK, "definition_hash": definition_hash}, changed_at=changed_at, evaluation=evaluation)
    assert (plan["scope"] if plan["evaluates"] else None, plan["reason"]) == (scope, reason)
    assert plan["positions"] == {"shop": HERE}


def definition_hash(sql: str = "select id from orders", **settings: Any) -> str:
    """The hash of a definition."""
    macros: Any = Macros(
        "bucket/bucket_definition",
        tojson=json.dumps,
        local_md5=lambda text: hashlib.md5(text.encode()).hexdigest(),
    )
    macros.definition_inputs = lambda _: INPUTS
    macros.upstream_nodes = lambda _: []
    macros.view_tables = lambda _: {}
    known = {
        "named_by": ["customer"],
        "bucket_by": ["customer"],
        "object_id": "id",
        "evaluation": "incremental",
        **settings,
    }
    digest: str = macros.bucket_definition(SimpleNamespace(name="orders"), sql, SimpleNamespace(**known).__dict__)[
        "hash"
    ]
    return digest


def test_a_definitions_hash_covers_its_sql_and_settings() -> None:
    assert definition_hash() == definition_hash("select id -- the key\nfrom orders")
    assert (
        len(
            {
                definition_hash(),
                definition_hash("select id from others"),
                definition_hash(object_id="no"),
                definition_hash(bucket_by=[]),
            }
        )
        == 4
    )


def test_a_models_watermark_is_the_minimum_of_its_inputs() -> None:
    """Events ahead of the tables wait for the decisions about the tables."""
    macros: Any = Macros("state/model_positions", selected_resources=["model.tidemark.row_state"])
    behind, ahead = {"checkpoint_id": 4, "position": 100}, {"checkpoint_id": 5, "position": 120}
    for events, tables in ((ahead, behind), (behind, ahead)):
        marks = {"events": {"shop": events}, "table_status": {"shop": tables}}
        macros.watermarks = lambda marks=marks: marks
        assert macros.model_positions("row_state") == {"shop": behind}


@pytest.mark.parametrize("count", [1, 2, 180, 181, 1000])
def test_changes_since_a_watermark_end_at_the_newest_checkpoint(count: int) -> None:
    predicate = Macros("sql_helpers/in_checkpoints").in_checkpoints("n", 10, 10 + count)
    numbers = range(-20, 2000)
    if " in " in predicate:
        named = {int(named_number) for named_number in predicate.partition("(")[2].rstrip(")").split(",")}
        actual = [number for number in numbers if number in named and number >= 0]
    else:
        assert predicate == f"(n > 10 and n <= {10 + count})"
        actual = list(range(11, 11 + count))
    assert actual == list(range(11, 11 + count))


def test_a_range_begins_at_the_end_of_the_previous_one() -> None:
    macros: Any = Macros("state/ranges")
    macros.watermarks = lambda: {"events": {"shop": {"checkpoint_id": 3, "position": 90}}}
    macros.model_positions = lambda _: {"shop": HERE, "crm": {"checkpoint_id": 5, "position": 7}}
    assert [(scope["source"], scope["lower"], scope["upper"], scope["since"]) for scope in macros.ranges("events")] == [
        ("shop", 90, 120, 3),
        ("crm", 0, 7, 0),
    ]
    macros.model_positions = lambda _: {"shop": {"checkpoint_id": 3, "position": 90}}
    assert macros.ranges("events") == []


@pytest.mark.parametrize(("in_log", "dropped", "last"), [(40, 30, 40), (0, 30, 30), (0, None, 0)])
def test_op_ids_continue_after_a_dropped_log(in_log: int, dropped: int | None, last: int) -> None:
    macros: Any = Macros(
        "publish/invalidate_published", "sql_helpers/literal", "sql_helpers/get_core_relation",
        run_query=lambda _: [{"last_op": dropped or 0}],
        api=SimpleNamespace(Relation=SimpleNamespace(create=lambda schema, identifier: f"{schema}.{identifier}")),
    )  # fmt: skip
    macros.highest = lambda *_: in_log
    macros.watermarks = lambda: {"orders": {"shop": MARK}}
    assert macros.last_op("orders", "buckets.orders__ops") == last


def test_a_tombstone_is_kept_until_every_definition_is_past_it() -> None:
    macros: Any = Macros("maintenance/purge_tombstones")
    ledger = {"shop": {"checkpoint_id": 9, "definition_hash": None}}
    macros.watermarks = lambda: {
        "row_state": ledger,
        "events": {"shop": {"checkpoint_id": 2, "definition_hash": None}},
        "orders": {"shop": {"checkpoint_id": 6, "definition_hash": "x"}},
        "late": {"shop": {"checkpoint_id": 4, "definition_hash": "x"}},
    }
    macros.old_checkpoints = lambda _: {"shop": 8}
    assert macros._passed_checkpoints(60) == {"shop": 4}


@pytest.mark.parametrize(
    "operator", ["Aggregate [id#1], [id#1]", "Window [1]", "Sort [id#1 ASC]", "Join Inner", "Union"]
)
def test_a_query_with_rows_that_depend_on_each_other_is_not_incremental(operator: str) -> None:
    macros: Any = Macros("bucket/check_row_wise")
    node = {"operator": operator.split(maxsplit=1)[0], "text": operator}
    assert macros._row_wise_violation(node) == node["operator"]
