"""Iterates any number of rows in order, holding one part of them in memory at a time."""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Row

ROWS_AT_ONCE = 20_000


def iter_sorted(rows: DataFrame, *keys: str) -> Iterator[Row]:
    """`rows` sorted by `keys`. A plain sort would return one part in a session with one shuffle partition."""
    parts = 1 + rows.count() // ROWS_AT_ONCE
    return rows.repartitionByRange(parts, *keys).sortWithinPartitions(*keys).toLocalIterator()
