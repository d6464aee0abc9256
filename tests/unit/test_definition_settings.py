"""Settings and inputs of definitions (rules B1, B5): an error names the problem, the file and the fix."""

from contextlib import nullcontext
from typing import Any

import pytest
from dbt_common.exceptions import CompilationError

from dbt.adapters.tidemark.definition_settings import (
    bucket_settings,
    check_lookup_columns,
    definition_settings,
    lookup_settings,
)
from dbt.adapters.tidemark.lake_statements import NoLake
from dbt.adapters.tidemark.project_graph import ProjectGraph
from dbt.adapters.tidemark.run_state import RunState

META = {"bucket_by": ["customer"], "object_id": "id", "unique_key": ["id"]}


def node(name: str, *parents: str, materialized: str = "view", meta: dict[str, Any] | None = None, **other: Any) -> Any:
    """A model of dbt's graph."""
    given = {
        "unique_id": f"model.shop.{name}",
        "name": name,
        "alias": name,
        "schema": "buckets",
        "resource_type": "model",
        "original_file_path": f"models/{name}.sql",
        "raw_code": "select 1",
        "version": None,
        "config": {"materialized": materialized, "meta": meta or {}},
        "depends_on": {"nodes": [f"model.shop.{parent}" for parent in parents]},
    }
    return {**given, **other}


def core_model(name: str) -> Any:
    """A model of `core` in dbt's graph."""
    config = {"materialized": "incremental", "incremental_strategy": "ledger", "meta": {}}
    return node(name, config=config, schema="core", alias=name)


def bucket(**meta: Any) -> Any:
    return node("orders", materialized="bucket", meta={**META, **meta})


def contracted(**types: str | None) -> Any:
    """A definition with an enforced model contract."""
    columns = {name: {"name": name, "data_type": data_type} for name, data_type in types.items()}
    return {**bucket(), "config": {"meta": META, "contract": {"enforced": True}}, "columns": columns}


def graph_of(*nodes: Any) -> ProjectGraph:
    return ProjectGraph({"nodes": {each["unique_id"]: each for each in nodes}}, ())


def test_settings_have_defaults() -> None:
    settings = bucket_settings(bucket(owner="sales", contains_pii=True))  # keys of other tools
    assert (settings.object_type, settings.evaluation, settings.named_by) == ("orders", "full", ["customer"])


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            bucket(evalution="full"),
            "meta has an unknown key 'evalution' (models/orders.sql). Did you mean evaluation?",
        ),
        (bucket(evaluation="partial"), "meta.evaluation is 'partial'"),
        (bucket(bucket_by="customer"), "meta.bucket_by is missing or not a list of names"),
        (bucket(bucket_by=[""]), "meta.bucket_by is missing or not a list of names"),
        (bucket(object_id=3), "meta.object_id is missing or not a name"),
        (bucket(object_type=""), "meta.object_type is not a name"),
        (bucket(unique_key=[]), "meta.unique_key is missing or not a list of names"),
        (bucket(evaluation="incremental"), "meta.unique_key does not go with evaluation: 'incremental'"),
        ({**bucket(), "name": "orders__ops"}, "the name ends in __ops"),
        ({**bucket(), "name": "Orders"}, "the name 'Orders' may only have lower-case letters"),
        ({**bucket(), "version": 1}, "definitions do not support versions"),
        ({**bucket(), "alias": "other"}, "the alias is 'other'"),
        (contracted(), "has a contract without columns"),
        (contracted(id="int", note=None), "has a contract without a data_type for the column 'note'"),
    ],
)
def test_an_invalid_setting_is_named(model: Any, problem: str) -> None:
    with pytest.raises(CompilationError) as error:
        bucket_settings(model)
    assert problem in str(error.value)


def lookup(*parents: str, code: str = "select 1", **meta: Any) -> Any:
    given = {"parameters": ["user_id"], "bucket": "orders", **meta}
    return node("access", *parents, materialized="bucket_lookup", meta=given, raw_code=code)


def test_a_lookup_names_the_buckets_of_its_definition() -> None:
    settings = lookup_settings(lookup("orders", code="-- {{ ref('orders') }}\nselect 1"), graph_of(bucket()))
    assert (settings.named_by, settings.bucket_by) == (["customer"], ["user_id"])
    assert settings.unique_key == ["user_id", "bucket_name"]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (lookup("orders", parameters="user_id"), "meta.parameters is missing"),
        (lookup("orders", bucket="stg"), "meta.bucket is 'stg', which is not a definition"),
        (lookup(), "does not depend on 'orders'"),
        (lookup("orders", code="select * from {{ ref('orders') }}"), "reads 'orders'"),
        (lookup("orders", code="select * from {{ ref('shop', 'orders') }}"), "reads 'orders'"),
        (lookup("orders", code="select * from `buckets`.orders"), "reads 'orders'"),
    ],
)
def test_an_invalid_lookup_is_refused(model: Any, problem: str) -> None:
    with pytest.raises(CompilationError) as error:
        lookup_settings(model, graph_of(bucket()))
    assert problem in str(error.value)


def test_a_lookup_selects_its_parameters_and_the_columns_of_the_bucket() -> None:
    check_lookup_columns(lookup("orders"), graph_of(bucket()), ["USER_ID", "customer"])
    with pytest.raises(CompilationError, match="does not select 'customer'"):
        check_lookup_columns(lookup("orders"), graph_of(bucket()), ["user_id"])


STAGING = {"source": "shop", "table": "public.orders"}


def test_inputs_are_the_tables_below_the_views() -> None:
    stg, view = node("stg", "row_state", meta=STAGING), node("view", "stg")
    core = core_model("row_state")
    graph = graph_of(core, stg, view)
    definition = node("orders", "view", "stg", materialized="bucket")
    assert graph.inputs(definition) == [STAGING]
    assert graph.view_tables(definition) == {"stg": "shop.public.orders"}


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([], "reads no staging view"),
        ([node("view", meta={"table": "public.orders"})], "which has meta.table, but no meta.source"),
        ([node("view", materialized="table")], "reads 'view', whose changes are not tracked"),
        ([node("view", "row_state"), core_model("row_state")], "which reads row_state directly"),
        (
            [node("view", depends_on={"nodes": ["source.shop.raw.t"]})],
            "reads 'view', which reads source.shop.raw.t directly",
        ),
        (
            [node("view", meta=STAGING, depends_on={"nodes": ["source.acme.shop.t", "source.acme.finance.rates"]})],
            "reads 'view', which reads source.acme.finance.rates directly",
        ),
    ],
)
def test_an_input_whose_changes_are_not_tracked_is_refused(nodes: list[Any], problem: str) -> None:
    with pytest.raises(CompilationError) as error:
        graph_of(*nodes).inputs(node("orders", "view", materialized="bucket"))
    assert problem in str(error.value)


def test_a_view_of_another_table_is_refused_unless_it_replaces_the_first() -> None:
    definition, before = node("orders", "stg", materialized="bucket"), {"stg": "shop.public.old"}
    with pytest.raises(CompilationError, match="stg shows shop.public.orders, but shop.public.old when orders was"):
        graph_of(node("stg", meta=STAGING)).check_view_tables(definition, before)
    graph_of(node("stg", meta={**STAGING, "replaces": "shop.public.old"})).check_view_tables(definition, before)


def test_a_definition_with_the_name_of_a_model_of_core_is_refused() -> None:
    with pytest.raises(CompilationError) as error:
        definition_settings({**bucket(), "name": "events", "alias": "events"}, graph_of(core_model("events")))
    assert "the name 'events' is that of a model of core" in str(error.value)
    assert definition_settings(bucket(), graph_of(core_model("events"))).name == "orders"


@pytest.mark.parametrize(
    ("name", "changes", "is_refused"),
    [
        ("events", {}, False),
        ("row_state", {"unique_key": ["table_id", "row_key"]}, False),
        ("row_state", {}, True),
        ("events", {"unique_key": ["seq"]}, True),
        ("events", {"incremental_strategy": "merge"}, True),
        ("events", {"materialized": "table"}, True),
        ("events", {"alias": "log"}, True),
        ("events", {"schema": "dev_core"}, True),
    ],
)
def test_settings_of_a_project_do_not_change_the_models_of_core(
    name: str, changes: dict[str, Any], is_refused: bool
) -> None:
    core = core_model(name)
    core = {**core, "package_name": "tidemark", "config": {**core["config"], **changes}, **changes}
    own = node("mart", materialized="incremental", package_name="shop")
    with pytest.raises(CompilationError, match=f"core.{name}") if is_refused else nullcontext():
        graph_of(core, own).check_core_models()


@pytest.mark.parametrize(
    ("unique_id", "problem"),
    [
        ("model.tidemark.events", None),
        ("model.tidemark.row_state", "dbt retry does not build"),
        ("model.shop.events", "which only models of the package tidemark can have"),
    ],
)
def test_only_selected_models_of_core_are_built_as_ledgers(unique_id: str, problem: str | None) -> None:
    run = RunState(NoLake(), ProjectGraph({}, ["model.tidemark.events", "model.shop.events"]))
    with pytest.raises(CompilationError, match=problem) if problem else nullcontext():
        run.assert_builds({"unique_id": unique_id, "name": "events"})
