"""docs/reading-buckets.md: its code, as it stands there, reads what the lake says."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest import ops, plan
from ingest.config import PostgresSource
from ingest.lake import Lake
from ingest.settings import JobSettings
from tests.conftest import Database
from tests.integration.replica import Replica
from tests.integration.skeleton import ROOT


def documented() -> Any:
    """What the page's Python defines."""
    found: dict[str, Any] = {"__name__": "reading_buckets"}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/reading-buckets.md").read_text(), re.DOTALL):
        exec(compile(block, "docs/reading-buckets.md", "exec"), found)
    return SimpleNamespace(**found)


def test_the_code_of_the_page_reads_a_bucket_while_it_changes_and_is_compacted(
    lake: Lake, lake_folder: Path, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute(
        "create table orders (id int primary key, customer int, total int);"
        "insert into orders select i, i % 2, i from generate_series(1, 6) i"
    )
    replica = Replica(lake, source, settings, tmp_path)
    view = replica.view("orders", {"id": "int", "customer": "int", "total": "int"})
    definition = replica.definition(
        "read",
        f"select _row_key, id, customer, total from {{{{ rows('{view}') }}}}",
        bucket_by=["customer"],
        object_id="id",
        evaluate="rows",
    )
    never = replica.definition(
        "never", f"select id from {{{{ ref('{view}') }}}} where id < 0", bucket_by=[], object_id="id", key=["id"]
    )
    name = ops.bucket_name(definition, "1")
    docs = documented()
    replica.sync()
    by_spark, by_pyiceberg, by_ops, late = docs.Bucket(), docs.Bucket(), docs.Bucket(), docs.Bucket()
    catalog, snapshots = docs.open_lake(str(lake_folder)), {}
    docs.read_with_spark(replica.spark, docs.moment(replica.spark), definition, name, late)
    for change in ("update orders set total = 0 where id < 4", "delete from orders where id = 1", ""):
        pinned = docs.moment(replica.spark)
        assert docs.moment_with_pyiceberg(catalog) == pinned
        if change:
            database.execute(change)
            replica.sync()
        else:
            log_table = f"buckets.{definition}__ops"
            assert replica.project.operation(
                "compact_log", model=definition, log_table=log_table, superseded_share=0.01
            )
        before = docs.Bucket()
        docs.read_with_spark(replica.spark, pinned, definition, name, before)
        snapshots = docs.moment(replica.spark)
        docs.read_with_spark(replica.spark, snapshots, definition, name, by_spark)
        docs.read_with_pyiceberg(catalog, snapshots, definition, name, by_pyiceberg)
        for line in ops.read(replica.spark, definition, name, by_ops.op_id):
            by_ops.apply(json.loads(line))
        assert by_spark == by_pyiceberg == by_ops
        assert (before == by_spark) == (not change)
    docs.read_with_pyiceberg(catalog, snapshots, definition, name, late)
    assert late == by_spark
    assert sorted(json.loads(data)["id"] for data in late.objects.values()) == [3, 5]
    nobody = docs.Bucket()
    docs.read_with_pyiceberg(catalog, snapshots, definition, f'{definition}["99"]', nobody)
    assert nobody == docs.Bucket()
    docs.read_with_spark(replica.spark, snapshots, never, f"{never}[]", nobody)
    docs.read_with_pyiceberg(catalog, snapshots, never, f"{never}[]", nobody)
    assert nobody == docs.Bucket()


def test_a_table_that_was_dropped_and_made_anew_is_told_from_the_one_before(
    lake: Lake, lake_folder: Path, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table orders (id int primary key); insert into orders values (1), (2)")
    replica = Replica(lake, source, settings, tmp_path)
    query = f"select _row_key, id from {{{{ rows('{replica.view('orders', {'id': 'int'})}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluate": "rows"}
    definition = replica.definition("read", query, **options)
    rows, log, path = f"buckets.{definition}", f"buckets.{definition}__ops", f"models/buckets/{definition}.sql"
    name = f"{definition}[]"
    docs = documented()
    catalog = docs.open_lake(str(lake_folder))

    def moment() -> dict[str, int]:
        found: dict[str, int] = docs.moment(replica.spark)
        assert docs.moment_with_pyiceberg(catalog) == found
        return found

    def read(snapshots: dict[str, int], copy: Any) -> Any:
        docs.read_with_spark(replica.spark, snapshots, definition, name, copy)
        return copy

    def refused(snapshots: dict[str, int], copy: Any, why: str) -> None:
        for reads, lakes in ((docs.read_with_spark, replica.spark), (docs.read_with_pyiceberg, catalog)):
            with pytest.raises(ValueError, match=why):
                reads(lakes, snapshots, definition, name, copy)

    replica.sync()
    before = moment()
    old = read(before, docs.Bucket())
    assert len(old.objects) == 2
    # Its rows are a plain table's, its log stays.
    replica.write(path, "{{ config(materialized='table', meta={}) }} select 1 as id")
    replica.model()
    assert rows not in moment()
    assert read(moment(), docs.Bucket()) == old
    replica.remove(path)
    (step,) = [step for step in plan.make(replica.spark, folder=replica.folder) if step.definition == definition]
    plan.prune([step], folder=replica.folder)
    assert {rows, log}.isdisjoint(moment())
    refused(before, docs.Bucket(), "is gone: take a new one")
    # Anew, without a row: there is nothing in its log.
    replica.definition("read", query + " where id > 2", **options)
    replica.sync()
    anew = moment()
    assert log not in anew
    assert replica.rows(f"select count(*) from {rows} version as of {anew[rows]}") == [(0,)]
    refused(before, docs.Bucket(), "is gone: take a new one")
    refused(anew, old, "was dropped: start over")
    assert read(anew, docs.Bucket()) == docs.Bucket()
    database.execute("insert into orders values (3)")
    replica.sync()
    refused(moment(), old, "start over")
    assert len(read(moment(), docs.Bucket()).objects) == 1
