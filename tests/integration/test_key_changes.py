"""Updates that change a row's key without all values: their base rows are found within a run."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from dbt.adapters.tidemark.lake_statements import NoLake
from dbt.adapters.tidemark.project_graph import ProjectGraph
from dbt.adapters.tidemark.run_state import RunState
from tests.unit.calling import Macros

Record = tuple[str, str | None, str, bool, dict[str, str]]

COLUMNS_OF_KEPT = (
    "source string, table_id string, row_key string, old_row_key string, op string, is_partial boolean,"
    "columns map<string, string>, place struct<commit_lsn: bigint, change_lsn: bigint, commit_index: int>,"
    "read_again_lsn bigint"
)


def create_kept_view(spark: SparkSession, log: Sequence[Record]) -> None:
    """Creates a view of events: (row_key, old_row_key, op, is_partial, columns) in the order of the log."""
    rows = [("shop", "T", *record, (1, commit_lsn, commit_lsn), None) for commit_lsn, record in enumerate(log)]
    spark.createDataFrame(rows, COLUMNS_OF_KEPT).createOrReplaceTempView("kept")


def cached_tables(spark: SparkSession) -> set[int]:
    """The tables that this Spark process caches, for any session."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def fill_values(spark: SparkSession, row_state: str | None) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The last columns of each key by the view `kept`, and the statements that computed them."""
    statements: list[str] = []

    def run_query(statement: str) -> list[Row]:
        statements.append(statement)
        return spark.sql(statement).collect()

    macros: Any = Macros(
        "row_state",
        "sql_helpers",
        run_query=run_query,
        is_incremental=lambda: row_state is not None,
    )
    run = RunState(NoLake(), ProjectGraph({}, ()))
    macros.run = lambda: run
    spark.sql("create namespace if not exists core")
    before = cached_tables(spark)
    links = macros.cache_key_chains("kept as (select * from kept)")
    query = macros.fill_across_key_changes(row_state, {"is_partial": [{"source": "shop", "table_name": "t"}]}, links)
    row = spark.sql(
        f"select row_key, max_by(columns, place) from ({query}) where op <> 'delete' group by row_key"
    ).collect()
    assert cached_tables(spark) > before
    macros.drop_key_chains()
    assert cached_tables(spark) == before
    return dict(row), statements


def test_old_keys_are_joined_without_a_cross_join(spark: SparkSession) -> None:
    create_kept_view(spark, [("a", "b", "update", True, {"v": "1"})])
    links = Macros("row_state").key_change_chains()
    (plan,) = spark.sql(f"explain with {links} select * from linked").collect()[0]
    assert "Window" in plan
    assert not re.search("CartesianProduct|NestedLoop", plan)


def test_a_merged_map_keeps_nulls_and_the_order_of_the_base(spark: SparkSession) -> None:
    over = Macros("row_state").merge_maps
    maps = "map('z', '1', 'a', '2', 'n', null)", "map('new', '3', 'n', '4', 'a', null)"
    (entries,) = spark.sql(f"select map_entries({over(*maps)})").collect()[0]
    assert list(map(tuple, entries)) == [("z", "1"), ("a", None), ("n", "4"), ("new", "3")]
    (entries_without_base,) = spark.sql(f"select {over('cast(null as map<string, string>)', maps[1])}").collect()[0]
    assert entries_without_base == {"new": "3", "n": "4", "a": None}


def test_many_key_changes_of_one_row_take_a_few_steps(spark: SparkSession) -> None:
    log: list[Record] = [("0", None, "insert", False, {"v": "0", "big": "x"})]
    for n in range(200):
        log += [(str(n), None, "delete", False, {}), (str(n + 1), str(n), "update", True, {"v": str(n + 1)})]
    create_kept_view(spark, log)
    columns, statements = fill_values(spark, None)
    assert columns["200"] == {"v": "200", "big": "x"}
    assert len([statement for statement in statements if statement.startswith("cache")]) == 11


@pytest.mark.parametrize("count", [2, 6, 30])
def test_rows_with_random_key_changes_and_swaps_keep_all_values(spark: SparkSession, count: int) -> None:
    draw = random.Random(count)
    rows = {str(key): {"v": "0", "big": f"of {key}"} for key in range(count)}
    before = [("shop", "T", "t", key, columns) for key, columns in rows.items()]
    spark.createDataFrame(
        before, "source string, table_id string, table_name string, row_key string, columns map<string, string>"
    ).createOrReplaceTempView("before")
    log: list[Record] = []

    def move(old: str, new: str) -> None:
        rows[new] = {**rows.pop(old), "v": str(len(log))}
        is_partial = draw.random() < 0.8
        log.append((old, None, "delete", False, {}))
        log.append((new, old, "update", is_partial, {"v": rows[new]["v"]} if is_partial else rows[new]))

    keys = [str(key) for key in range(2 * len(rows))]
    while len(log) < 300:
        free = [key for key in keys if key not in rows]
        step, n = draw.choice(["insert", "update", "update", "move", "move", "swap", "delete"]), str(len(log))
        if step == "insert" and free:
            rows[key := draw.choice(free)] = {"v": n, "big": f"of {n}"}
            log.append((key, None, "insert", False, rows[key]))
        elif step == "delete" and len(rows) > 1:
            del rows[key := draw.choice(list(rows))]
            log.append((key, None, "delete", False, {}))
        elif step == "update":
            key, change = draw.choice(list(rows)), draw.choice([{"v": n}, {"v": n, "big": f"of {n}"}])
            rows[key] = rows[key] | change
            log.append((key, None, "update", "big" not in change, change))
        elif step == "move" and free:
            move(draw.choice(list(rows)), draw.choice(free))
        elif step == "swap" and len(rows) > 1:
            a, b = draw.sample(list(rows), 2)
            move(a, "temporary")
            move(b, a)
            move("temporary", b)
    create_kept_view(spark, log)
    actual, _ = fill_values(spark, "before")
    touched = {key for key, *_ in log}
    assert {key: actual.get(key) for key in rows if key in touched} == {
        key: rows[key] for key in rows if key in touched
    }
