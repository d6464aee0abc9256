"""Rows in order, however many: in parts of which the JVM and this process hold one at a time."""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Row

ROWS_AT_ONCE = 20_000


def in_order(rows: DataFrame, *keys: str) -> Iterator[Row]:
    """`rows` by these columns. A sort alone would make one part of all, where a session shuffles into one."""
    parts = 1 + rows.count() // ROWS_AT_ONCE
    return rows.repartitionByRange(parts, *keys).sortWithinPartitions(*keys).toLocalIterator()
