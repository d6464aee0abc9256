"""The columns of definitions: types, names, and the tables that they change."""

from typing import Any

import pytest
from dbt_common.exceptions import CompilationError

from dbt.adapters.tidemark import column_types
from dbt.adapters.tidemark.bucket_plan import Definition, make_plan
from dbt.adapters.tidemark.bucket_tables import BucketTables, TableChange
from dbt.adapters.tidemark.definition_columns import check_columns, check_contract
from dbt.adapters.tidemark.definition_settings import DefinitionSettings
from dbt.adapters.tidemark.lake_statements import Column
from dbt.adapters.tidemark.project_graph import ProjectGraph
from dbt.adapters.tidemark.releases import INVALIDATED, Releases
from dbt.adapters.tidemark.run_state import RunState
from tests.harness.recorded_lake import RecordedLake

MODEL: dict[str, Any] = {
    "unique_id": "model.shop.orders",
    "name": "orders",
    "alias": "orders",
    "schema": "buckets",
    "resource_type": "model",
    "original_file_path": "models/orders.sql",
    "config": {"materialized": "bucket"},
}
MARK: dict[str, Any] = {
    "model": "orders",
    "source": "shop",
    "checkpoint_id": 3,
    "position": 90,
    "release_id": 7,
    "columns": "[]",
    "view_tables": "{}",
    "last_op": 0,
    "has_integer_keys": None,
}
SETTINGS = DefinitionSettings("orders", ["customer"], ["customer"], "order", "id", "incremental", [])
KEY, ID, CUSTOMER = Column("_row_key", "string"), Column("id", "int"), Column("Customer", "string")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bigint", True),
        ("timestamp_ntz", True),
        ("variant", True),
        ("array<struct<time:timestamp,interval:int,void:string>>", True),
        ("void", False),
        ("array<void>", False),
        ("interval day to second", False),
        ("map<string,interval year to month>", False),
        ("time(6)", False),
        ("struct<a:time(6)>", False),
        ("struct<a b:int>", False),
        ("struct<a,b:int>", False),
        ("struct<a>b:int>", False),
        ("struct<é:int>", False),
        ("struct<array<int>x:int>", False),
        ("struct<xarray<int>:int>", False),
        ("struct<a:b:int>", False),
        ("struct<1:int>", False),
        ("struct<1l:int>", False),
        ("struct<>", False),
        ("map<string,struct<>>", False),
        ("struct<a:int,A:int>", False),
        ("struct<a:int,a:int>", False),
        ("array<struct<a:struct<b:decimal(9,2),c:int,B:int>>>", False),
        ("struct<a:struct<a:int>,b:struct<a:int,b:map<string,array<int>>>,c:decimal(9,2)>", True),
    ],
)
def test_a_type_that_no_table_can_have_is_reported(kind: str, expected: bool) -> None:
    assert column_types.is_storable(kind) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("smallint", "int"),
        ("struct<smallint:tinyint>", "struct<smallint:int>"),
        ("array<string collate UTF8_LCASE>", "array<string>"),
        ("decimal(9,2)", "decimal(9,2)"),
    ],
)
def test_iceberg_stores_small_integers_as_int_and_no_collations(kind: str, expected: str) -> None:
    assert column_types.storage_type(kind) == expected


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("bigint", "int", True),
        ("int", "bigint", False),
        ("double", "float", False),
        ("decimal(10,2)", "decimal(9,2)", True),
        ("decimal(9,2)", "decimal(10,2)", False),
        ("decimal(10,3)", "decimal(9,2)", False),
    ],
)
def test_a_type_is_widened_in_place_if_its_values_are_written_alike(new: str, old: str, expected: bool) -> None:
    assert column_types.is_wider(new, old) is expected


@pytest.mark.parametrize(
    ("columns", "are_integers"),
    [
        ([], True),
        (["id"], True),
        (["ID", "n (1)"], True),
        (["id", "at"], False),
        (["day"], False),
        (["x"], False),
        (["_row_key"], False),
    ],
)
def test_integer_columns_are_recognised(columns: list[str], are_integers: bool) -> None:
    types = {"Id": "bigint", "n (1)": "integer", "at": "timestamp", "day": "interval day", "x": "struct"}
    assert column_types.are_integers(columns, types) is are_integers


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([KEY, ID, CUSTOMER, Column("ID", "int")], "selects two columns named 'ID'"),
        ([KEY, ID, CUSTOMER, Column("_Op_Id", "int")], "selects a column named '_Op_Id'"),
        ([KEY, ID, CUSTOMER, Column("_pos", "int")], "selects a column named '_pos'"),
        ([KEY, ID, CUSTOMER, Column("x", "void")], "selects 'x' as void"),
        ([KEY, CUSTOMER], "meta names a column 'id' that the query does not select"),
        ([ID, CUSTOMER], "meta names a column '_row_key' that the query does not select"),
        ([KEY, Column("id", "map<string,int>"), CUSTOMER], "the column 'id', whose type map<string,int> is no text"),
    ],
)
def test_a_column_that_a_bucket_cannot_have_is_refused(columns: list[Column], problem: str) -> None:
    with pytest.raises(CompilationError, match="models/orders.sql") as error:
        check_columns(MODEL, SETTINGS, columns)
    assert problem in str(error.value)


def test_names_in_meta_match_columns_in_any_case() -> None:
    check_columns(MODEL, SETTINGS, [KEY, ID, CUSTOMER])


INVALIDATION = (
    "alter table lake.core.releases create branch if not exists run_1 as of version 1",
    "insert_release",
    "call system.fast_forward('lake.core.releases', 'main', 'run_1')",
)


def lake_with(existing: list[Column], published_hash: str = "old") -> RecordedLake:
    """With a definition that was published with this hash, and the columns of its rows."""
    heads = [{"table_name": table, "name": "main", "snapshot_id": 1} for table in ("buckets.orders", "core.releases")]
    lake = RecordedLake(
        {
            "current_catalog": [{"catalog": "lake"}],
            "from core.model_watermarks": [
                {**MARK, "definition_hash": published_hash},
                {**MARK, "model": "row_state", "definition_hash": None},
            ],
            "type = 'BRANCH'": heads,
            "as newest": lambda: [{"newest": MARK["release_id"] + lake.statements.count("insert_release")}],
            "describe buckets.orders": [{"col_name": column.name, "data_type": column.type} for column in existing],
            "input_states_query": [
                {"name": "shop.public.orders", "is_waiting": False, "changed_at": 1, "changed_rows": 1}
            ],
        }
    )
    return lake


def prepare(lake: RecordedLake, columns: list[Column]) -> tuple[TableChange, list[str]]:
    """How the tables of an edited definition change, and the statements that change them."""
    run = RunState(lake, ProjectGraph({}, ()))
    definition = Definition("orders", "new", [{"source": "shop", "table": "public.orders"}], "incremental")
    plan = make_plan(run, definition, is_there=True, full_refresh=False)
    assert plan.evaluates
    change = BucketTables(run, Releases(run, "run_1")).prepare(MODEL, "select", SETTINGS, columns, plan)
    return change, changes(lake)


def changes(lake: RecordedLake) -> list[str]:
    return [text for text in lake.changes if text.startswith(("alter", "call", "dry_run", "insert"))]


def test_columns_are_added_renamed_and_widened_without_a_rewrite() -> None:
    columns = [Column("id", "bigint"), Column("Name", "string"), Column("added", "date")]
    lake = lake_with([Column("id", "int"), Column("name", "string"), Column("old", "int")])
    change, statements = prepare(lake, columns)
    assert change == TableChange()
    assert statements == [
        "alter table buckets.orders alter column `id` type bigint",
        "alter table buckets.orders rename column `name` to `Name__renamed`",
        "alter table buckets.orders rename column `Name__renamed` to `Name`",
        "alter table buckets.orders add column `added` date",
    ]


def test_a_changed_type_is_evaluated_before_its_column_is_dropped() -> None:
    change, statements = prepare(lake_with([Column("id", "int")]), [Column("id", "string"), Column("n", "int")])
    assert change == TableChange(rewritten=True)
    assert statements == [
        "dry_run_evaluation",
        *INVALIDATION,
        "alter table buckets.orders add column `n` int",
        "alter table buckets.orders drop column `id`",
        "alter table buckets.orders add column `id` string",
    ]


def test_no_column_is_dropped_after_another_run_has_published() -> None:
    """It has written the new column, while this run paused after its invalidation."""
    lake = lake_with([Column("id", "int")])
    lake.answers["as newest"] = lambda: [{"newest": 99 if "insert_release" in lake.statements else 7}]
    with pytest.raises(CompilationError, match="another run published 99 during this run"):
        prepare(lake, [Column("id", "string")])
    assert changes(lake) == ["dry_run_evaluation", *INVALIDATION]


def test_an_interrupted_rename_is_finished() -> None:
    _, statements = prepare(lake_with([Column("Name__renamed", "string")]), [Column("Name", "string")])
    assert statements == ["alter table buckets.orders rename column `Name__renamed` to `Name`"]


def test_an_invalidated_definition_is_rewritten() -> None:
    assert prepare(lake_with([ID], published_hash=INVALIDATED), [ID]) == (TableChange(rewritten=True), [])


def contracted(**types: str | None) -> dict[str, Any]:
    columns = {name: {"name": name, "data_type": data_type} for name, data_type in types.items()}
    config = {**MODEL["config"], "contract": {"enforced": True}}
    return {**MODEL, "config": config, "columns": columns, "compiled_code": "select id, note from t"}


def described(**types: str) -> list[dict[str, Any]]:
    return [{"col_name": name, "data_type": data_type} for name, data_type in types.items()]


def check_selected(model: dict[str, Any], **expected: str) -> None:
    answers = {"select id": described(ID="int", note="string"), "select cast": described(**expected)}
    check_contract(RecordedLake(dict(answers)), model)


def test_a_contract_is_compared_by_name_and_by_type_of_spark() -> None:
    check_selected(contracted(id="integer", note="string"), id="int", note="string")


def test_each_difference_from_a_contract_is_named() -> None:
    with pytest.raises(CompilationError) as error:
        check_selected(contracted(id="bigint", v="date"), id="bigint", v="date")
    assert (
        "differs from its contract: 'id' is int (contract: bigint), 'v' is not selected (contract: date), "
        "'note' is string (contract: no such column) (models/orders.sql). Change the query or the contract."
    ) in str(error.value)


def test_a_contract_may_have_the_types_of_the_query_or_of_the_table() -> None:
    for expected in ("smallint", "int"):
        answers = {"select id": described(id="smallint", note="string")}
        answers["select cast"] = described(id=expected, note="string")
        check_contract(RecordedLake(dict(answers)), contracted(id=expected, note="string"))


def test_a_contract_that_is_not_enforced_costs_no_statement() -> None:
    lake = RecordedLake({})
    check_contract(lake, {**contracted(id="date"), "config": {"contract": {"enforced": False}}})
    assert lake.statements == []
