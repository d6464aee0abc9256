"""The ops of a definition whose rows change: an op per difference, numbered, with a checksum (rules B1 to B4)."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.harness.core_models import CoreModels

NAME = "orders"
COLUMNS = [{"name": "customer", "type": "int"}, {"name": "id", "type": "bigint"}, {"name": "total", "type": "string"}]
SETTINGS = {
    "name": NAME,
    "bucket_by": ["customer"],
    "object_type": "order",
    "object_id": "id",
}
Object = tuple[int, int, str | None]


class Definition:
    """Orders by customer, with a full evaluation at each `run`."""

    def __init__(self, spark: SparkSession, unique_key: Sequence[str] = ("id",), slices: int = 1) -> None:
        self._spark, self._slices = spark, slices
        self._settings = SETTINGS | {"unique_key": list(unique_key)}
        self._core = CoreModels(spark)
        self._rows: list[Any] = []
        self.last_op = 0

    def run(self, *objects: Object) -> list[dict[str, Any]]:
        """Sets the objects (id, customer, total) of the query; returns the new ops in order."""
        self._core.view("evaluated_orders", "id bigint, customer int, total string", *objects)
        plan = {"scope": "all", "positions": {"shop": {"checkpoint_id": 5, "position": 100}}}
        change = {"is_new": not self._rows, "rewritten": False}
        query = "select * from evaluated_orders"
        statement = self._core.macros.insert_differences(
            "rows_before", query, self._settings, COLUMNS, plan, change, self.last_op, self._slices
        )
        ops = self._spark.sql(statement[statement.index("with objects as") :])
        appended = ops.collect()
        replaced = {row["_replaces"] for row in appended}
        kept = [row for row in self._rows if row["_op_id"] not in replaced]
        self._rows = kept + [row for row in appended if row["_op_id"] > 0]
        self.last_op = max([self.last_op, *(abs(row["_op_id"]) for row in appended)])
        self._spark.createDataFrame(self._rows, ops.schema).createOrReplaceTempView("rows_before")
        return sorted((row.asDict() for row in appended), key=lambda row: abs(row["_op_id"]))


@pytest.fixture
def orders(spark: SparkSession) -> Definition:
    return Definition(spark)


def summarize(ops: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [("PUT" if op["_op_id"] > 0 else "REMOVE", op["bucket"], op["object_id"]) for op in ops]


def test_a_row_that_changes_its_bucket_is_a_remove_and_a_put(orders: Definition) -> None:
    """An unchanged row gets no op, even if its order in the query changes."""
    assert summarize(orders.run((1, 7, "a"), (2, 7, "b"), (3, 8, None))) == [
        ("PUT", 'orders["7"]', "1"),
        ("PUT", 'orders["7"]', "2"),
        ("PUT", 'orders["8"]', "3"),
    ]
    assert orders.run((3, 8, None), (1, 7, "a"), (2, 7, "b")) == []
    assert summarize(orders.run((1, 9, "a"), (2, 7, "changed"), (3, 8, None))) == [
        ("REMOVE", 'orders["7"]', "1"),
        ("PUT", 'orders["7"]', "2"),
        ("PUT", 'orders["9"]', "1"),
    ]
    assert summarize(orders.run((1, 9, "a"))) == [("REMOVE", 'orders["7"]', "2"), ("REMOVE", 'orders["8"]', "3")]


def test_op_ids_continue_after_the_last_op(orders: Definition) -> None:
    ids = []
    for objects in ([(1, 7, "a"), (2, 7, "b")], [(1, 7, "c")], [(1, 7, "d")], [(4, 7, "e")]):
        ids += [abs(op["_op_id"]) for op in orders.run(*objects)]
    assert ids == list(range(1, len(ids) + 1))


def test_ops_numbered_in_slices_alternate_and_removals_come_first(spark: SparkSession) -> None:
    """Each object has a new row key in the second run."""
    orders = Definition(spark, unique_key=("id", "total"), slices=4)
    first = orders.run(*[(number, number % 3, "a") for number in range(40)])
    second = orders.run(*[(number, number % 3, "b") for number in range(40)])
    ids = [abs(op["_op_id"]) for op in first + second]
    assert len(set(ids)) == 40 + 80
    assert ids == sorted(ids)
    assert {op_id % 4 for op_id in ids} == {0, 1, 2, 3}
    assert max(ids) < 2 * 120
    removed = {op["object_id"]: -op["_op_id"] for op in second if op["_op_id"] < 0}
    put = {op["object_id"]: op["_op_id"] for op in second if op["_op_id"] > 0}
    assert all(op_id < put[object_id] for object_id, op_id in removed.items())
    assert len(removed) == len(put) == 40


def test_checksums_follow_the_design(orders: Definition) -> None:
    """Enough ops for digests that begin with zeros and with bytes above 127."""
    objects: list[Object] = [(number, 7, None if number == 5 else f"text {number}") for number in range(1000)]
    for op in orders.run(*objects):
        (_, customer, total) = objects[int(op["object_id"])]
        data = json.dumps({"customer": customer, "id": int(op["object_id"]), "total": total}, separators=(",", ":"))
        assert op["_checksum"] == checksum(f"put.order.{op['object_id']}.{data}")
    for op in orders.run(objects[0]):
        assert op["_checksum"] == checksum(f"delete.{op['row_key']}")


def checksum(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
