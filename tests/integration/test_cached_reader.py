"""Rows that are kept in memory are those that a query would return."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from pyspark.sql import Row, SparkSession

from ingest.lake import Lake
from ingest.lake.cached_reader import CachedReader


@pytest.fixture
def table(lake: Lake) -> Iterator[str]:
    name = f"raw.t{uuid.uuid4().hex[:12]}"
    create(lake.spark, name)
    yield name
    lake.spark.sql(f"DROP TABLE {name} PURGE")


def create(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (n BIGINT) USING iceberg")


def read(reader: CachedReader, table: str) -> list[int]:
    return [row.n for row in reader.collect(f"SELECT n FROM {table} ORDER BY n")]


def count_jobs(spark: SparkSession, reader: CachedReader, query: str) -> int:
    group = uuid.uuid4().hex

    def collect() -> None:
        spark.sparkContext.setJobGroup(group, "test")  # of this thread
        reader.collect(query)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(collect).result()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_commits_of_other_sessions_are_seen_at_once(lake: Lake, table: str) -> None:
    # A new session has a catalog of its own, as another process has.
    reader, other = CachedReader(lake.spark, table), lake.spark.newSession()
    assert read(reader, table) == []
    for count in range(1, 4):
        other.sql(f"INSERT INTO {table} VALUES ({count})")
        assert read(reader, table) == list(range(1, count + 1))
    other.sql(f"DELETE FROM {table} WHERE n > 1")
    assert read(reader, table) == [1]


def test_an_unchanged_table_is_not_queried_again(lake: Lake, table: str) -> None:
    reader, queries = CachedReader(lake.spark, table), [f"SELECT max(n) FROM {table}", f"SELECT sum(n) FROM {table}"]
    lake.spark.sql(f"INSERT INTO {table} VALUES (1), (2)")
    assert [count_jobs(lake.spark, reader, query) > 0 for query in queries * 2] == [True, True, False, False]
    assert [reader.collect(query)[0][0] for query in queries] == [2, 3]
    lake.spark.sql(f"INSERT INTO {table} VALUES (3)")
    assert [count_jobs(lake.spark, reader, query) > 0 for query in queries * 2] == [True, True, False, False]
    assert [reader.collect(query)[0][0] for query in queries] == [3, 6]


def test_a_table_that_was_created_again_is_read(lake: Lake, table: str) -> None:
    reader = CachedReader(lake.spark, table)
    lake.spark.sql(f"INSERT INTO {table} VALUES (1)")
    assert read(reader, table) == [1]
    lake.spark.sql(f"DROP TABLE {table} PURGE")
    create(lake.spark, table)
    assert read(reader, table) == []
    lake.spark.sql(f"INSERT INTO {table} VALUES (2)")
    assert read(reader, table) == [2]


def test_a_commit_during_the_query_is_not_kept_as_the_rows_before_it(lake: Lake, table: str) -> None:
    committed = iter([2])

    class Session:
        """Spark, but another process commits before its first query."""

        def __getattr__(self, name: str) -> object:
            return getattr(lake.spark, name)

        def sql(self, query: str) -> object:
            for n in committed:
                lake.spark.sql(f"INSERT INTO {table} VALUES ({n})")
            return lake.spark.sql(query)

    lake.spark.sql(f"INSERT INTO {table} VALUES (1)")
    ((before,),) = lake.spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").collect()
    reader = CachedReader(cast("SparkSession", Session()), table)
    assert read(reader, table) == [1, 2]
    lake.spark.sql(f"CALL system.rollback_to_snapshot('{table}', {before})")
    assert read(reader, table) == [1]


def test_callers_may_change_the_rows_that_they_get(lake: Lake, table: str) -> None:
    reader = CachedReader(lake.spark, table)
    lake.spark.sql(f"INSERT INTO {table} VALUES (1)")
    rows = reader.collect(f"SELECT n FROM {table}")
    rows.clear()
    assert reader.collect(f"SELECT n FROM {table}") == [Row(n=1)]
