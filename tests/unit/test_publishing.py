"""How a run publishes: write, audit, publish, in an order that a kill at any point leaves repairable (rule C4)."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.calling import Macros

BRANCH = "run_ab"
EVENTS, ORDERS = "core.events", "buckets.orders"
MARK: dict[str, Any] = {"checkpoint_id": 3, "position": 90, "release_id": 7, "definition_hash": None, "columns": []}
POSITIONS = {"shop": {"checkpoint_id": 4, "position": 100}}


class Refused(Exception):
    """The error that a macro raises."""


def raise_refused(message: str) -> None:
    raise Refused(message)


class Lake:
    """Records the statements of the macros, in order. newest: the current release of the table."""

    def __init__(self, newest: int = 7, **context: Any) -> None:
        self.newest = newest
        self.statements: list[str] = []
        folders = {
            "publish": (
                *("append_release", "apply_manifest", "branch", "commit_release"),
                *("publish", "publishable_models", "refs"),
            ),
            "state": ("invocation_cache", "model_positions", "watermarks"),
            "sql_helpers": ("get_core_relation", "highest", "in_checkpoints", "literal", "relation_exists"),
        }
        macro_context: dict[str, Any] = {
            "run_query": self.run_query,
            "api": SimpleNamespace(
                Relation=SimpleNamespace(create=lambda schema, identifier: f"{schema}.{identifier}")
            ),
            "exceptions": SimpleNamespace(raise_compiler_error=raise_refused),
            "load_relation": lambda relation: relation,
            "execute": True,
            "graph": {},
            "invocation_id": "ab",
            "tojson": json.dumps,
            "fromjson": json.loads,
        }
        paths = [f"{folder}/{file}" for folder, names in folders.items() for file in names]
        macros: Any = Macros(*paths, **{**macro_context, **context})
        macros.watermarks = lambda: {"events": {"shop": MARK}}
        macros.refs = lambda tables: {table: {"main": 1, BRANCH: 2} for table in tables}
        macros.diverged_tables = lambda *_: []
        macros.assert_cache_fresh = lambda _: None
        macros.has_more_columns = lambda *_: False
        macros.published_tables = list
        macros.table_exists = lambda _: True
        self.macros = macros

    def run_query(self, statement: str) -> list[dict[Any, Any]]:
        statement = " ".join(statement.split())
        self.statements.append(statement)
        if "current_catalog" in statement:
            return [{0: "lake"}]
        if "distinct release_id" in statement:
            return [{"release_id": self.newest}]
        if statement.startswith("select model, `table`, branch"):
            return [{"model": "events", "table": EVENTS, "branch": BRANCH, "columns": "[]"}]
        return [{"newest": self.newest, "highest": self.newest}]

    def places(self, *parts: str) -> list[int]:
        """The positions of the statements with these parts, in the order of the parts."""
        return [next(number for number, statement in enumerate(self.statements) if part in statement) for part in parts]


def publish(lake: Lake, seen: int) -> None:
    """The staged tables of two models, based on the state after the release `seen`."""
    report: dict[str, Any] = {"positions": POSITIONS, "definition_hash": None, "columns": []}
    models = [
        {"name": name, "tables": [table], "report": {**report, "staged": [table]}}
        for name, table in (("events", EVENTS), ("orders", ORDERS))
    ]
    lake.macros.commit_release(models, [seen])


RELEASE = ("insert into core.releases", "fast_forward('lake.core.releases'")
TABLES = (f"fast_forward('lake.{EVENTS}'", f"fast_forward('lake.{ORDERS}'")
MARKS = "insert overwrite core.model_watermarks"


def test_the_release_is_first_then_each_table_and_the_watermarks_last() -> None:
    lake = Lake()
    publish(lake, 7)
    expected = [*RELEASE, *TABLES, MARKS, f"drop branch if exists {BRANCH}"]
    places = lake.places(*expected)
    assert places == sorted(places)
    assert len([statement for statement in lake.statements if MARKS in statement]) == 1


def test_a_run_overtaken_by_another_one_publishes_nothing() -> None:
    lake = Lake(newest=8)
    with pytest.raises(Refused, match="another run published 8 during this run, which is based on 7"):
        publish(lake, 7)
    assert [statement for statement in lake.statements if not statement.startswith("select")] == []


def test_an_interrupted_release_is_completed_by_the_next_run() -> None:
    lake = Lake(newest=8)
    lake.macros.finish_interrupted_release()
    places = lake.places(TABLES[0], MARKS)
    assert places == sorted(places)


def test_no_release_is_completed_twice() -> None:
    lake = Lake(newest=7)
    lake.macros.finish_interrupted_release()
    assert [statement for statement in lake.statements if not statement.startswith("select")] == []


def node(name: str, *parents: str, kind: str = "model") -> Any:
    """A node of dbt's graph: an append-only model, or a test."""
    return SimpleNamespace(
        unique_id=name,
        name=name,
        resource_type=kind,
        schema="core",
        alias=name,
        config=SimpleNamespace(materialized="ledger"),
        depends_on=SimpleNamespace(nodes=list(parents)),
    )


@pytest.mark.parametrize(
    ("statuses", "passed"),
    [
        ({}, ["a", "b", "c"]),
        ({"test.a": "warn"}, ["a", "b", "c"]),
        ({"test.a": "fail"}, ["c"]),
        ({"test.a": "error"}, ["c"]),
        ({"test.a": None}, ["c"]),
        ({"a": "error", "b": "skipped", "test.a": "skipped"}, ["c"]),
        ({"b": "error"}, ["a", "c"]),
    ],
)
def test_a_failure_publishes_nothing_that_depends_on_it(statuses: dict[str, str | None], passed: list[str]) -> None:
    """`test.a` tests `a`, on which `b` depends. A status of None: the node was not run."""
    nodes = [node("a"), node("b", "a"), node("c"), node("test.a", "a", kind="test")]
    results = [
        SimpleNamespace(node=graph_node, status=status, adapter_response={"code": "{}"})
        for graph_node in nodes
        if (status := statuses.get(graph_node.name, "pass" if graph_node.resource_type == "test" else "success"))
    ]
    graph = SimpleNamespace(nodes={graph_node.unique_id: graph_node for graph_node in nodes})
    lake = Lake(graph=graph, selected_resources=[graph_node.unique_id for graph_node in nodes])
    lake.macros.is_definition = lambda _: False
    assert [model["name"] for model in lake.macros.publishable_models(results)] == passed
