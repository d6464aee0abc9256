"""Queries of the lake that any reader can run: a bucket, ops, Iceberg snapshots."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from ingest.demo.definitions import Definition
from ingest.lake.sql_literals import literal

_ID_COLUMNS = ("bucket", "object_type", "object_id", "row_key")


def read_bucket(spark: SparkSession, name: str) -> list[dict[str, Any]]:
    """The rows of a bucket, without Tidemark's own columns."""
    table = f"buckets.{name.partition('[')[0]}"
    rows = spark.sql(f"select * from {table} where bucket = {literal(name)} order by row_key")
    column_names = [name for name in rows.columns if name not in _ID_COLUMNS and not name.startswith("_")]
    return [{name: row[name] for name in column_names} for row in rows.collect()]


def read_main_snapshots(spark: SparkSession, tables: Sequence[str]) -> dict[str, int]:
    """The published Iceberg snapshot of each table."""
    query = " union all ".join(
        f"select {literal(table)} as name, snapshot_id from {table}.refs where name = 'main'" for table in tables
    )
    return {row["name"]: row["snapshot_id"] for row in spark.sql(query).collect()}


def count_ops(spark: SparkSession, definition: Definition) -> int:
    """The number of ops in a definition's log."""
    return spark.table(definition.log).count()
