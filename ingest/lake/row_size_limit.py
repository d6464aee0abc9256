"""The largest row that fits into Spark's heap, and the rejection of larger rows before they are committed.

A run of the models holds several copies of a row in the heap of the process that runs Spark's tasks. A rejected row
stays in the source and in its log.
"""

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ingest.common.errors import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # executors import this module without a session

# How many copies of a row a run holds at once, measured (Large rows in docs/guides/operate.md), and Spark's own.
COPIES = 16
SPARK_BYTES = 300 << 20
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SHOWN_KEY = 100


def largest_row(heap: int) -> int:
    """The size of the largest row that fits into a heap of `heap` bytes, in bytes."""
    return max(heap - SPARK_BYTES, 0) // COPIES


def heap_bytes(spark: "SparkSession") -> int | None:
    """The heap of a process that runs tasks, in bytes; None if the session does not report it."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None and str(spark.sparkContext.master).startswith("local"):
        return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    size = str(spark.conf.get("spark.executor.memory", "") or "").lower().removesuffix("b")
    number, unit = (size[:-1], _UNITS[size[-1]]) if size[-1:] in _UNITS else (size, _UNITS["m"])
    return int(number) * unit if number.isdigit() else None


def check_row_sizes(rows: pa.Table, largest: int) -> None:
    """Raises Failure if one of `rows`, which have the `columns` of a raw table, is larger than `largest` bytes."""
    if rows.nbytes <= largest:
        return
    sizes = _sizes(rows)
    index = pc.index(sizes, pc.max(sizes)).as_py()
    if (size := sizes[index].as_py()) > largest:
        source, table = rows["source"][index].as_py(), rows["table_name"][index].as_py()
        raise Failure(
            f"a row of {_mebibytes(size)} is larger than Spark's heap has room for ({_mebibytes(largest)})",
            f"source {source}, table {table}, key {rows['row_key'][index].as_py()[:_SHOWN_KEY]}",
            "Raise TIDEMARK_DRIVER_MEMORY (on a cluster spark.executor.memory), or leave the table out "
            f"(tables: [..., {json.dumps('!' + table, ensure_ascii=False)}]); the source keeps uncommitted changes",
        )


def _sizes(rows: pa.Table) -> pa.Array:
    """The size of each row's key and values, in bytes."""
    sizes = []
    for batch in rows.to_batches():
        columns = batch["columns"]
        lengths = pc.fill_null(pc.binary_length(columns.items), 0)
        before = pc.cumulative_sum(pc.cast(pa.concat_arrays([pa.array([0], lengths.type), lengths]), pa.int64()))
        ends = pc.take(before, columns.offsets)
        size = pc.subtract(ends[1:], ends[:-1])
        for name in ("row_key", "old_row_key"):
            if name in batch.schema.names:
                size = pc.add(size, pc.cast(pc.fill_null(pc.binary_length(batch[name]), 0), pa.int64()))
        sizes.append(size)
    return pa.concat_arrays(sizes)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
