"""How a run publishes: write, audit, publish, in an order that a kill at any point leaves repairable (rule C4)."""

from types import SimpleNamespace
from typing import Any

import pytest
from dbt_common.exceptions import CompilationError

from dbt.adapters.tidemark.manifest import Publication, publishable_models
from dbt.adapters.tidemark.model_states import first_line, unpublished_states
from dbt.adapters.tidemark.project_graph import ProjectGraph
from dbt.adapters.tidemark.releases import Releases
from dbt.adapters.tidemark.run_state import Report, RunState
from dbt.adapters.tidemark.watermarks import Point
from tests.harness.recorded_lake import RecordedLake, Rows

BRANCH = "run_ab"
EVENTS, ORDERS = "core.events", "buckets.orders"
WATERMARK: dict[str, Any] = {
    "model": "events",
    "source": "shop",
    "checkpoint_id": 3,
    "position": 90,
    "release_id": 7,
    "definition_hash": None,
    "columns": "[]",
    "view_tables": "{}",
    "last_op": None,
    "has_integer_keys": None,
}
POSITIONS = {"shop": Point(4, 100)}
RELEASE = ("insert_release", "fast_forward('lake.core.releases'")
TABLES = (f"fast_forward('lake.{EVENTS}'", f"fast_forward('lake.{ORDERS}'")
WATERMARKS = "write_watermarks"


def branches(*tables: str) -> Rows:
    """Tables with main at snapshot 1, and the run's branch at 2."""
    return [
        {"table_name": table, "name": name, "snapshot_id": snapshot_id}
        for table in tables
        for name, snapshot_id in (("main", 1), (BRANCH, 2))
    ]


def lake(newest: int = 7, parent: int = 1) -> RecordedLake:
    """newest: the last release of `core.releases`. parent: of the staged snapshots; main is at 1."""
    return RecordedLake(
        {
            "current_catalog": [{"catalog": "lake"}],
            "type = 'BRANCH'": branches("core.releases", EVENTS, ORDERS),
            "parent_id": [{"snapshot_id": 2, "parent_id": parent}],
            "select release_id, model": [
                {
                    "release_id": 8,
                    "model": "events",
                    "table": EVENTS,
                    "branch": BRANCH,
                    "columns": "[]",
                    "snapshot_id": 2,
                }
            ],
            "from core.model_watermarks": [WATERMARK],
            "as newest": [{"newest": newest}],
        }
    )


def releases(on: RecordedLake) -> Releases:
    return Releases(RunState(on, ProjectGraph({}, ())), BRANCH)


def publish(on: RecordedLake, seen: int) -> None:
    """The staged tables of two models, based on the state after the release `seen`."""
    models = [
        Publication(name, (table,), Report(POSITIONS, staged=[table]))
        for name, table in (("events", EVENTS), ("orders", ORDERS))
    ]
    releases(on).commit(models, {seen})


def test_the_release_is_first_then_each_table_and_the_watermarks_last() -> None:
    recorded = lake()
    publish(recorded, 7)
    places = recorded.places(*RELEASE, *TABLES, WATERMARKS, f"drop branch if exists {BRANCH}")
    assert places == sorted(places)
    assert recorded.statements.count(WATERMARKS) == 1


def test_branches_of_one_table_are_not_dropped_at_once() -> None:
    recorded = lake()
    left = [{"table_name": EVENTS, "name": "run_left", "snapshot_id": 3}]
    recorded.answers["type = 'BRANCH'"] = branches("core.releases", EVENTS, ORDERS) + left
    publish(recorded, 7)
    batches = [drops for drops in recorded.parallel if "drop branch" in " ".join(drops)]
    assert [sum(EVENTS in drop for drop in drops) for drops in batches] == [1, 1]
    assert any("run_left" in drop for drop in batches[0] + batches[1])


def test_a_run_overtaken_by_another_one_publishes_nothing() -> None:
    recorded = lake(newest=8)
    with pytest.raises(CompilationError, match="another run published 8 during this run, which is based on 7"):
        publish(recorded, 7)
    assert recorded.changes == []


def test_a_run_whose_table_another_process_wrote_publishes_nothing() -> None:
    recorded = lake(parent=9)
    with pytest.raises(
        CompilationError, match=r"\(core.events, buckets.orders\): another process changed or dropped them"
    ):
        publish(recorded, 7)
    assert recorded.changes == []


def test_a_run_whose_staged_rows_another_process_dropped_publishes_nothing() -> None:
    recorded = lake()
    recorded.answers["type = 'BRANCH'"] = branches("core.releases", EVENTS)
    with pytest.raises(CompilationError, match=r"\(buckets.orders\): another process changed or dropped them"):
        publish(recorded, 7)
    assert recorded.changes == []


def test_a_run_continues_after_its_own_invalidation() -> None:
    recorded = lake()
    own = releases(recorded)
    own.invalidate("orders", ORDERS)
    recorded.answers["as newest"] = [{"newest": 8}]
    own.commit([Publication("events", (EVENTS,), Report(POSITIONS, staged=[EVENTS]))], {7})
    assert recorded.statements.count("insert_release") == 2


def test_watermarks_that_another_process_has_written_are_kept() -> None:
    """It has finished release 8, and pruned `orders`, after this run had read the watermarks."""
    recorded = lake()
    run = RunState(recorded, ProjectGraph({}, ()))
    assert run.newest_release == 7
    recorded.answers["current_watermarks_query"] = [
        {**WATERMARK, "release_id": 8, "is_written": True},
        {**WATERMARK, "release_id": 8, "is_written": False, "model": "orders", "definition_hash": "h"},
        {**WATERMARK, "release_id": 9, "is_written": False, "model": "row_state"},
    ]
    run.write_watermarks(9)
    assert {model: by_source["shop"].release_id for model, by_source in run.watermarks.items()} == {
        "events": 8,
        "row_state": 9,
    }
    assert recorded.changes[-1] == WATERMARKS


def test_an_interrupted_release_is_completed_by_the_next_run() -> None:
    recorded = lake(newest=8)
    releases(recorded).finish_interrupted()
    places = recorded.places(TABLES[0], WATERMARKS)
    assert places == sorted(places)
    assert "insert_release" not in recorded.statements


def test_no_release_is_completed_twice() -> None:
    recorded = lake(newest=7)
    releases(recorded).finish_interrupted()
    assert recorded.changes == []


def test_a_release_that_another_process_completes_meanwhile_is_left_alone() -> None:
    recorded = lake(newest=8)
    reads = iter([7, 8])
    recorded.answers["from core.model_watermarks"] = lambda: [{**WATERMARK, "release_id": next(reads)}]
    releases(recorded).finish_interrupted()
    assert recorded.changes == []


def test_a_finished_release_whose_watermarks_were_overwritten_drops_no_branch() -> None:
    """A process that was late has written the watermarks of release 7 again, while a run based on 8 has staged rows."""
    recorded = lake(newest=8)
    recorded.answers["type = 'BRANCH'"] = [
        {"table_name": EVENTS, "name": name, "snapshot_id": 3} for name in ("main", "run_live")
    ]
    releases(recorded).finish_interrupted()
    assert recorded.changes[-1] == WATERMARKS
    assert not [statement for statement in recorded.changes if "branch" in statement or "fast_forward" in statement]


def test_a_committed_release_that_cannot_be_applied_names_the_fix() -> None:
    recorded = lake(newest=8, parent=9)
    with pytest.raises(CompilationError, match="set_current_snapshot.table => 'core.events', ref => 'run_ab'"):
        releases(recorded).finish_interrupted()


def node(name: str, *parents: str, kind: str = "model") -> dict[str, Any]:
    """A node of dbt's graph: an append-only model, or a test."""
    return {
        "unique_id": name,
        "name": name,
        "resource_type": kind,
        "schema": "core",
        "alias": name,
        "config": {"materialized": "incremental", "incremental_strategy": "ledger"},
        "depends_on": {"nodes": list(parents)},
    }


def result(of: dict[str, Any], status: str, message: str = "") -> Any:
    """dbt's result of a node."""
    attributes = {**of, "depends_on": SimpleNamespace(**of["depends_on"])}
    return SimpleNamespace(node=SimpleNamespace(**attributes), status=status, message=message)


def run_of(nodes: list[dict[str, Any]]) -> RunState:
    """A run that selects these nodes, in which each model reported."""
    state = RunState(
        lake(), ProjectGraph({"nodes": {each["name"]: each for each in nodes}}, [n["name"] for n in nodes])
    )
    for each in nodes:
        state.record(each["unique_id"], positions=POSITIONS)
    return state


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
        result(each, status)
        for each in nodes
        if (status := statuses.get(each["name"], "pass" if each["resource_type"] == "test" else "success"))
    ]
    assert [model.name for model in publishable_models(results, run_of(nodes))] == passed


def test_a_test_tests_what_is_no_ancestor_of_another_of_its_nodes() -> None:
    graph = ProjectGraph({"nodes": {each["name"]: each for each in (node("view"), node("bucket", "view"))}}, ())
    assert graph.tested(["view", "bucket"]) == {"bucket"}
    assert graph.tested(["view"]) == {"view"}


def test_an_unpublished_model_has_the_reason_of_the_failure_before_it() -> None:
    nodes = [node("a"), node("b", "a"), node("c"), node("test.a", "a", kind="test")]
    results = [
        result(nodes[0], "success"),
        result(nodes[1], "success"),
        result(nodes[2], "success", "waiting for shop.public.t"),
        result(nodes[3], "fail", "Got 2 results"),
    ]
    run = run_of(nodes)
    run.record("c", positions=POSITIONS, is_waiting=True)
    states = unpublished_states(results, publishable_models(results, run), run.graph)
    assert {name: (state.state, state.reason) for name, state in states.items()} == {
        "a": ("failed", "test.a: Got 2 results"),
        "b": ("failed", "test.a: Got 2 results"),
        "c": ("waiting", "waiting for shop.public.t"),
    }


def test_the_line_with_the_cause_of_a_failure_is_kept() -> None:
    message = (
        "Runtime Error in model a (models/a.sql)\n  An error occurred while calling o1.sql.\n  : java.X: no\n\tat a(b)"
    )
    assert first_line(message) == "java.X: no"


@pytest.mark.parametrize(
    ("published", "is_refused"), [("buckets.orders", False), ("marts.orders", True), (None, False)]
)
def test_a_published_definition_keeps_its_schema(published: str | None, is_refused: bool) -> None:
    on = RecordedLake(
        {"from core.model_watermarks": [{**WATERMARK, "model": "orders"}], "last_table": [{"last_table": published}]}
    )
    model = {"name": "orders", "schema": "buckets", "original_file_path": "models/orders.sql"}
    if not is_refused:
        releases(on).check_schema(model)
        return
    with pytest.raises(CompilationError, match=r"the schema is 'buckets', but 'marts' when orders was published"):
        releases(on).check_schema(model)
