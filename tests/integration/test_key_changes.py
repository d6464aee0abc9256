"""Updates that change a row's key and lack values: the rows that they lie over are found within a run."""

import random
import re
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from pyspark.sql import Row, SparkSession

from tests.unit.calling import Macros

Record = tuple[str, str | None, str, bool, dict[str, str]]

COLUMNS_OF_KEPT = (
    "source string, table_id string, row_key string, old_row_key string, op string, is_partial boolean,"
    "columns map<string, string>, place struct<commit_lsn: bigint, change_lsn: bigint, commit_index: int>,"
    "read_again_lsn bigint"
)


def kept(spark: SparkSession, log: Sequence[Record]) -> None:
    """A view of kept records: (row_key, old_row_key, op, is_partial, columns) in the order of the log."""
    rows = [("shop", "T", *record, (1, at, at), None) for at, record in enumerate(log)]
    spark.createDataFrame(rows, COLUMNS_OF_KEPT).createOrReplaceTempView("kept")


def held(spark: SparkSession) -> set[int]:
    """What this Spark holds in memory, for any session."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def followed(spark: SparkSession, row_state: str | None) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Each key's last columns by the view `kept`, and the statements that led to them."""
    statements: list[str] = []

    def run_query(statement: str) -> list[Row]:
        statements.append(statement)
        return spark.sql(statement).collect()

    files = ("key_change_chains", "cache_key_chains", "fill_across_key_changes", "merge_maps", "in_tables")
    macros = Macros(
        "sql_helpers/relation_exists",
        "sql_helpers/literal",
        "state/invocation_cache",
        *(f"row_state/{file}" for file in files),
        run_query=run_query,
        load_relation=lambda relation: relation,
        graph={},
        target=SimpleNamespace(schema="core"),
        invocation_id="one",
    )
    spark.sql("create namespace if not exists core")
    before = held(spark)
    links = macros.cache_key_chains("kept as (select * from kept)")
    query = macros.fill_across_key_changes(row_state, {"is_partial": [{"source": "shop", "table_name": "t"}]}, links)
    found = spark.sql(
        f"select row_key, max_by(columns, place) from ({query}) where op <> 'delete' group by row_key"
    ).collect()
    assert held(spark) > before
    macros.drop_key_chains()
    assert held(spark) == before
    return dict(found), statements


def test_whose_rows_were_taken_over_is_found_without_pairing_all_with_all(spark: SparkSession) -> None:
    kept(spark, [("a", "b", "update", True, {"v": "1"})])
    links = Macros("row_state/key_change_chains", "row_state/merge_maps").key_change_chains()
    (found,) = spark.sql(f"explain with {links} select * from linked").collect()[0]
    assert "Window" in found
    assert not re.search("CartesianProduct|NestedLoop", found)


def test_a_map_over_another_keeps_its_nulls_and_the_order_below(spark: SparkSession) -> None:
    over = Macros("row_state/merge_maps").merge_maps
    maps = "map('z', '1', 'a', '2', 'n', null)", "map('new', '3', 'n', '4', 'a', null)"
    (found,) = spark.sql(f"select map_entries({over(*maps)})").collect()[0]
    assert list(map(tuple, found)) == [("z", "1"), ("a", None), ("n", "4"), ("new", "3")]
    (alone,) = spark.sql(f"select {over('cast(null as map<string, string>)', maps[1])}").collect()[0]
    assert alone == {"new": "3", "n": "4", "a": None}


def test_a_row_whose_key_changes_often_in_one_run_takes_a_few_steps(spark: SparkSession) -> None:
    log: list[Record] = [("0", None, "insert", False, {"v": "0", "big": "x"})]
    for n in range(200):
        log += [(str(n), None, "delete", False, {}), (str(n + 1), str(n), "update", True, {"v": str(n + 1)})]
    kept(spark, log)
    found, statements = followed(spark, None)
    assert found["200"] == {"v": "200", "big": "x"}
    assert len([statement for statement in statements if statement.startswith("cache")]) == 11


@pytest.mark.parametrize("count", [2, 6, 30])
def test_rows_whose_keys_change_and_swap_at_random_keep_all_their_values(spark: SparkSession, count: int) -> None:
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
        what, n = draw.choice(["insert", "update", "update", "move", "move", "swap", "delete"]), str(len(log))
        if what == "insert" and free:
            rows[key := draw.choice(free)] = {"v": n, "big": f"of {n}"}
            log.append((key, None, "insert", False, rows[key]))
        elif what == "delete" and len(rows) > 1:
            del rows[key := draw.choice(list(rows))]
            log.append((key, None, "delete", False, {}))
        elif what == "update":
            key, change = draw.choice(list(rows)), draw.choice([{"v": n}, {"v": n, "big": f"of {n}"}])
            rows[key] = rows[key] | change
            log.append((key, None, "update", "big" not in change, change))
        elif what == "move" and free:
            move(draw.choice(list(rows)), draw.choice(free))
        elif what == "swap" and len(rows) > 1:
            a, b = draw.sample(list(rows), 2)
            move(a, "meanwhile")
            move(b, a)
            move("meanwhile", b)
    kept(spark, log)
    found, _ = followed(spark, "before")
    touched = {key for key, *_ in log}
    assert {key: found.get(key) for key in rows if key in touched} == {key: rows[key] for key in rows if key in touched}
