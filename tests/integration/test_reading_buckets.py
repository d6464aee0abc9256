"""docs/guides/reading-buckets.md: its code works as printed."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.commands import op_log
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.project import definition_plan
from tests.conftest import Database
from tests.harness.pipeline import SourcePipeline
from tests.harness.project_copy import ROOT


def load_documented_client() -> Any:
    """The names that the page's Python code defines."""
    namespace: dict[str, Any] = {"__name__": "reading_buckets"}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/reading-buckets.md").read_text(), re.DOTALL):
        exec(compile(block, "docs/guides/reading-buckets.md", "exec"), namespace)
    return SimpleNamespace(**namespace)


def test_the_documented_client_reads_a_bucket_through_compaction(
    lake: Lake, lake_folder: Path, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute(
        "create table orders (id int primary key, customer int, total int);"
        "insert into orders select i, i % 2, i from generate_series(1, 6) i"
    )
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("orders", {"id": "int", "customer": "int", "total": "int"})
    definition = pipeline.definition(
        "read",
        f"select _row_key, id, customer, total from {{{{ rows('{view}') }}}}",
        bucket_by=["customer"],
        object_id="id",
        evaluation="incremental",
    )
    never = pipeline.definition(
        "never", f"select id from {{{{ ref('{view}') }}}} where id < 0", bucket_by=[], object_id="id", unique_key=["id"]
    )
    name = op_log.make_bucket_name(definition, "1")
    docs = load_documented_client()
    pipeline.sync()

    def read_rows(moment: dict[str, int]) -> dict[str, int]:
        """The totals of the bucket's rows at a moment, by id: its log at that moment must lead to them."""
        table = f"buckets.{definition}"
        rows = pipeline.spark.read.option("versionAsOf", moment[table]).table(table)
        return {row.object_id: row.total for row in rows.where(rows.bucket == name).collect()}

    def replay(bucket: Any) -> dict[str, int]:
        return {key[1]: json.loads(data)["total"] for key, data in bucket.objects.items()}

    by_spark, by_pyiceberg, by_ops, occasional = docs.Bucket(), docs.Bucket(), docs.Bucket(), docs.Bucket()
    catalog, snapshots = docs.open_lake(str(lake_folder)), {}
    docs.read_with_spark(pipeline.spark, docs.moment(pipeline.spark), definition, name, occasional)
    for change in ("update orders set total = 0 where id < 4", "delete from orders where id = 1", ""):
        pinned = docs.moment(pipeline.spark)
        assert docs.moment_with_pyiceberg(catalog) == pinned
        if change:
            database.execute(change)
            pipeline.sync()
        else:
            log_table = f"buckets.{definition}__ops"
            assert pipeline.project.run_operation(
                "maintenance_step",
                step="compact_log",
                arguments={"model": definition, "log_table": log_table, "superseded_share": 0.01},
            )
        before = docs.Bucket()
        docs.read_with_spark(pipeline.spark, pinned, definition, name, before)
        snapshots = docs.moment(pipeline.spark)
        docs.read_with_spark(pipeline.spark, snapshots, definition, name, by_spark)
        docs.read_with_pyiceberg(catalog, snapshots, definition, name, by_pyiceberg)
        for line in op_log.read_ops(pipeline.spark, definition, name, by_ops.op_id):
            by_ops.apply(json.loads(line))
        assert by_spark == by_pyiceberg == by_ops
        assert read_rows(pinned) == replay(before)
        assert read_rows(snapshots) == replay(by_spark)
        assert (before == by_spark) == (not change)
    docs.read_with_pyiceberg(catalog, snapshots, definition, name, occasional)
    assert occasional == by_spark
    assert sorted(json.loads(data)["id"] for data in occasional.objects.values()) == [3, 5]
    empty_bucket = docs.Bucket()
    docs.read_with_pyiceberg(catalog, snapshots, definition, f'{definition}["99"]', empty_bucket)
    assert empty_bucket == docs.Bucket()
    docs.read_with_spark(pipeline.spark, snapshots, never, f"{never}[]", empty_bucket)
    docs.read_with_pyiceberg(catalog, snapshots, never, f"{never}[]", empty_bucket)
    assert empty_bucket == docs.Bucket()


def test_a_recreated_table_has_another_id(
    lake: Lake, lake_folder: Path, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table orders (id int primary key); insert into orders values (1), (2)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    query = f"select _row_key, id from {{{{ rows('{pipeline.view('orders', {'id': 'int'})}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    definition = pipeline.definition("read", query, **options)
    rows, log, path = f"buckets.{definition}", f"buckets.{definition}__ops", f"models/buckets/{definition}.sql"
    name = f"{definition}[]"
    docs = load_documented_client()
    catalog = docs.open_lake(str(lake_folder))

    def read_moment() -> dict[str, int]:
        snapshots: dict[str, int] = docs.moment(pipeline.spark)
        assert docs.moment_with_pyiceberg(catalog) == snapshots
        return snapshots

    def read(snapshots: dict[str, int], copy: Any) -> Any:
        docs.read_with_spark(pipeline.spark, snapshots, definition, name, copy)
        return copy

    def assert_refused(snapshots: dict[str, int], copy: Any, why: str) -> None:
        for reads, lakes in ((docs.read_with_spark, pipeline.spark), (docs.read_with_pyiceberg, catalog)):
            with pytest.raises(ValueError, match=why):
                reads(lakes, snapshots, definition, name, copy)

    pipeline.sync()
    before = read_moment()
    old = read(before, docs.Bucket())
    assert len(old.objects) == 2
    # The bucket's table is now an ordinary table; its log stays.
    pipeline.write(path, "{{ config(materialized='table', meta={}) }} select 1 as id")
    pipeline.model()
    assert rows not in read_moment()
    assert read(read_moment(), docs.Bucket()) == old
    pipeline.remove(path)
    definition_plan.prune_definitions(pipeline.spark, [definition], folder=pipeline.folder)
    assert {rows, log}.isdisjoint(read_moment())
    assert_refused(before, docs.Bucket(), "is gone: take a new one")
    # Created again without rows: its log is empty.
    pipeline.definition("read", query + " where id > 2", **options)
    pipeline.sync()
    recreated = read_moment()
    assert log not in recreated
    assert pipeline.rows(f"select count(*) from {rows} version as of {recreated[rows]}") == [(0,)]
    assert_refused(before, docs.Bucket(), "is gone: take a new one")
    assert_refused(recreated, old, "was dropped: start over")
    assert read(recreated, docs.Bucket()) == docs.Bucket()
    database.execute("insert into orders values (3)")
    pipeline.sync()
    assert_refused(read_moment(), old, "start over")
    assert len(read(read_moment(), docs.Bucket()).objects) == 1
