"""What a run does with a definition, by watermarks and inputs; and watermarks of models (design rules B6, C2, S5)."""

from typing import Any

import pytest

from dbt.adapters.tidemark.bucket_plan import BucketPlan, Definition, DefinitionHashes, make_plan
from dbt.adapters.tidemark.definition_settings import DefinitionSettings
from dbt.adapters.tidemark.maintenance import Maintenance
from dbt.adapters.tidemark.project_graph import ProjectGraph
from dbt.adapters.tidemark.releases import Releases
from dbt.adapters.tidemark.run_state import InputState, RunState
from dbt.adapters.tidemark.sql_text import normalized_sql
from dbt.adapters.tidemark.watermarks import Point
from tests.harness.recorded_lake import RecordedLake
from tests.unit.calling import Macros

INPUTS = [{"source": "shop", "table": "public.orders"}]
MARK = {
    "model": "orders",
    "source": "shop",
    "checkpoint_id": 3,
    "position": 90,
    "release_id": 7,
    "definition_hash": "new",
    "columns": '["id"]',
    "view_tables": "{}",
    "last_op": 40,
    "has_integer_keys": True,
}
HERE, BEFORE = Point(5, 120), Point(3, 90)
CORE = ("checkpoints", "events", "table_status", "row_state")


def watermark(model: str = "orders", at: Point = BEFORE, **other: Any) -> dict[str, Any]:
    """A row of `core.model_watermarks`."""
    return {**MARK, "model": model, "checkpoint_id": at.checkpoint_id, "position": at.position, **other}


def run_with(*watermarks: dict[str, Any], selected: tuple[str, ...] = (), **answers: Any) -> RunState:
    """A run in a lake with these watermarks. answers: the rows of queries by a text in them."""
    lake = RecordedLake({"from core.model_watermarks": list(watermarks), **answers})
    return RunState(lake, ProjectGraph({}, [f"model.tidemark.{name}" for name in selected]))


def plan_with(
    *, definition_hash: str = "new", waiting: bool = False, changed_at: int = 5, evaluation: str = "incremental"
) -> BucketPlan:
    """The plan of a definition that was published with this hash; its input was changed last at a checkpoint."""
    state = {"name": "shop.public.orders", "is_waiting": waiting, "changed_at": changed_at, "changed_rows": 3}
    run = run_with(watermark(definition_hash=definition_hash), watermark("row_state", HERE), input_states_query=[state])
    return make_plan(run, Definition("orders", "new", INPUTS, evaluation), is_there=True, full_refresh=False)


def test_an_input_waits_while_one_of_its_generations_does() -> None:
    """A table that no generation is known of has no state, whatever `row_state` has of it."""
    name, other = "shop.public.orders", "shop.public.renamed"
    generations = [
        {"name": name, "is_waiting": waiting, "changed_at": None, "changed_rows": None}
        for waiting in (False, True, False)
    ]
    changes = [{"name": table, "is_waiting": None, "changed_at": 5, "changed_rows": 3} for table in (name, other)]
    run = run_with(watermark("row_state", HERE), input_states_query=[*changes, *generations])
    assert run.input_states == {name: InputState(waiting=True, changed_at=5, changed_rows=3)}


def test_a_definition_with_an_unready_input_waits() -> None:
    """It keeps its watermark and its published hash: changes made meanwhile are evaluated when the input is ready."""
    for definition_hash in ("new", "old"):
        plan = plan_with(definition_hash=definition_hash, waiting=True)
        assert not plan.evaluates
        assert plan.positions == {"shop": BEFORE}
        assert plan.definition_hash == definition_hash
        assert plan.reason == "waiting for shop.public.orders"


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
    plan = plan_with(definition_hash=definition_hash, changed_at=changed_at, evaluation=evaluation)
    assert (plan.scope if plan.evaluates else None, plan.reason) == (scope, reason)
    assert plan.positions == {"shop": HERE}
    assert plan.changed_rows == (3 if reason == "inputs changed" else 0)


@pytest.mark.parametrize(
    ("input_rows", "slices"), [(0, 1), (99_999, 1), (100_000, 2), (6_300_000, 64), (10_000_000, 64)]
)
def test_ops_of_many_rows_are_numbered_in_slices(input_rows: int, slices: int) -> None:
    assert BucketPlan.op_slices(input_rows) == slices


VIEW = {
    "unique_id": "model.shop.stg_orders",
    "name": "stg_orders",
    "schema": "staging",
    "alias": "stg_orders",
    "resource_type": "model",
    "config": {"materialized": "view", "meta": {"source": "shop", "table": "public.orders"}},
    "depends_on": {"nodes": []},
}


def definition_hash(
    sql: str = "select id from orders", view: str = "select 1 as id", lake: RecordedLake | None = None, **settings: Any
) -> str:
    """The hash of a definition over a view as it is deployed."""
    known = {"name": "orders", "named_by": ["customer"], "bucket_by": ["customer"], "object_type": "order"}
    known |= {"object_id": "id", "evaluation": "incremental", "unique_key": []}
    created = f"CREATE VIEW lake.staging.stg_orders (\n  id)\nTBLPROPERTIES (\n  'a' = 'b')\nAS\n{view}"
    lake = lake or RecordedLake({"show create table staging.stg_orders": [{"createtab_stmt": created}]})
    run = RunState(lake, ProjectGraph({"nodes": {VIEW["unique_id"]: VIEW}}, ()))
    model = {
        "name": "orders",
        "original_file_path": "models/buckets/orders.sql",
        "config": {"materialized": "bucket"},
        "depends_on": {"nodes": [VIEW["unique_id"]]},
    }
    return DefinitionHashes(run).describe(model, sql, DefinitionSettings(**(known | settings))).hash


def test_a_definitions_hash_covers_its_sql_its_views_and_settings() -> None:
    assert definition_hash() == definition_hash("select id -- the key\nfrom orders")
    assert definition_hash() == definition_hash(view="select  1 as id /* one */\n")
    different = [
        definition_hash(),
        definition_hash("select id from others"),
        definition_hash(view="select 2 as id"),
        definition_hash(object_id="no"),
        definition_hash(bucket_by=[]),
    ]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("select  1,\n 'a  b' -- it's\n , x /* it's */ from t", "select 1,'a  b',x from t"),
        ("select 1 /* a /* b */ it's */ , 'c /* ' , 2 -- */", "select 1,'c /* ',2"),
        ("select ';' as a ; -- the end\n;", "select ';' as a"),
    ],
)
def test_comments_and_white_space_are_no_difference(sql: str, same: str) -> None:
    assert normalized_sql(sql) == normalized_sql(same)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("select 'a  b'", "select 'a b'"),
        ("select 'a' 'b'", "select 'a''b'"),
        (r"select r'\' as a", r"select '\\' as a"),
        ("select a b", "select ab"),
        ("select 1 -- it's \\\n it's", "select 1"),
    ],
)
def test_other_text_is_a_difference(one: str, other: str) -> None:
    """The last one: sqlglot can't divide it, as Spark does; it counts as it is."""
    assert normalized_sql(one) != normalized_sql(other)


def test_a_models_watermark_is_the_minimum_of_its_inputs() -> None:
    """Events ahead of the tables wait for the decisions about the tables."""
    behind, ahead = Point(4, 100), Point(5, 120)
    for events, tables in ((ahead, behind), (behind, ahead)):
        run = run_with(watermark("events", events), watermark("table_status", tables), selected=("row_state",))
        assert run.positions("row_state") == {"shop": behind}
    run = run_with(watermark("table_status", ahead), selected=("row_state",))
    assert run.positions("row_state") == {}, "a source that events has never processed"


def test_the_staged_checkpoint_is_that_of_the_models_after_it() -> None:
    run = run_with(*(watermark(name) for name in CORE), selected=CORE)
    run.stage_checkpoints({"shop": 120}, 5)
    assert run.positions("row_state") == {"shop": HERE}
    assert run.tested_positions("events") == run.advanced("events")
    assert run_with(*(watermark(name) for name in CORE)).positions("row_state") == {"shop": BEFORE}


@pytest.mark.parametrize("count", [1, 2, 180, 181, 1000])
def test_changes_since_a_watermark_end_at_the_newest_checkpoint(count: int) -> None:
    predicate = Macros("sql_helpers").in_checkpoints("n", 10, 10 + count)
    numbers = range(-20, 2000)
    if " in " in predicate:
        named = {int(named_number) for named_number in predicate.partition("(")[2].rstrip(")").split(",")}
        actual = [number for number in numbers if number in named and number >= 0]
    else:
        assert predicate == f"(n > 10 and n <= {10 + count})"
        actual = list(range(11, 11 + count))
    assert actual == list(range(11, 11 + count))


def test_a_range_begins_at_the_end_of_the_previous_one() -> None:
    run = run_with(watermark("checkpoints"), watermark("events"), selected=CORE)
    run.stage_checkpoints({"shop": 120, "crm": 7}, 5)
    assert [(each.source, each.lower, each.upper, each.since) for each in run.ranges("events")] == [
        ("shop", 90, 120, 3),
        ("crm", 0, 7, 0),
    ]
    assert run_with(watermark("checkpoints"), watermark("events"), selected=CORE).ranges("events") == []


@pytest.mark.parametrize(("published", "dropped", "last"), [("orders", 30, 40), ("other", 30, 30), ("other", None, 0)])
def test_op_ids_continue_after_the_published_or_dropped_log(published: str, dropped: int | None, last: int) -> None:
    run = run_with(watermark(published), last_op=[{"last_op": dropped}])
    assert Releases(run, "run_ab").last_op("orders") == last


def test_a_source_is_needed_from_the_lowest_watermark_of_its_definitions() -> None:
    nodes = {
        name: {"name": name, "resource_type": "model", "config": {"materialized": "bucket"}}
        for name in ("orders", "late")
    }
    watermarks = [
        watermark(at=Point(6, 1)),
        watermark("late", Point(4, 1)),
        watermark("row_state", Point(9, 1)),
        watermark("events", Point(2, 1)),
    ]
    run = RunState(RecordedLake({"from core.model_watermarks": watermarks}), ProjectGraph({"nodes": nodes}, ()))
    assert run._find_lowest_watermarks({"shop": HERE}) == {"shop": 4}


def test_a_tombstone_is_kept_until_every_definition_is_past_it() -> None:
    old_checkpoints: Any = {"from core.checkpoints": [{"source": "shop", "checkpoint_id": 8}]}
    run = run_with(
        watermark("row_state", Point(9, 1), definition_hash=None),
        watermark("events", Point(2, 1), definition_hash=None),
        watermark("orders", Point(6, 1)),
        watermark("late", Point(4, 1)),
        **old_checkpoints,
    )
    assert Maintenance(run, Releases(run, "run_1"))._find_passed_checkpoints(60) == {"shop": 4}
