"""From a real Postgres to buckets: after every run tables, bucket rows and replayed op logs equal SQL on the source."""

import random
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from dbt_common.exceptions import DbtRuntimeError
from pyspark.errors import AnalysisException

from dbt.adapters.tidemark import bucket_plan, impl, log_slices
from ingest.commands import op_log
from ingest.commands.bucket_lookup import find_grants
from ingest.common.errors import Failure, UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Chunk, Lake
from ingest.project import definition_plan
from ingest.project.dbt_project import ConcurrentPublishError, Project
from ingest.snapshot.snapshotter import SnapshotHooks
from tests.conftest import Database
from tests.harness.kill_points import (
    Killed,
    StatementKilled,
    intercept_statements,
    isolated_dbt,
    kill_at_statement,
    run_before_statement,
    run_during_statement,
)
from tests.harness.pipeline import SourcePipeline, sort_rows
from tests.harness.postgres_jobs import PostgresJobs, chunk_settings
from tests.harness.project_copy import ROOT

ORDERS = {"id": "bigint", "customer": "int", "status": "string", "total": "decimal(12, 2)"}
COLUMNS = ", ".join(ORDERS)


@pytest.fixture
def pipeline(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> SourcePipeline:
    """Orders in the source, a definition per customer and an aggregate."""
    database.execute(
        "create table orders (id bigint primary key, customer int, status text, total numeric(12, 2), note text);"
        "alter table orders alter note set storage external;"
        "insert into orders select i, i % 5, 'new', i, repeat('x', 3000) from generate_series(1, 40) i"
    )
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("orders", {**ORDERS, "note": "string"})
    pipeline.definition(
        "by_customer",
        f"select _row_key, {COLUMNS} from {{{{ rows('{view}') }}}} where status <> 'archived'",
        bucket_by=["customer"],
        object_type="order",
        object_id="id",
        evaluation="incremental",
    )
    pipeline.definition(
        "totals",
        f"select customer, sum(total) as total, count(*) as orders from {{{{ ref('{view}') }}}} group by customer",
        bucket_by=[],
        object_id="customer",
        unique_key=["customer"],
    )
    return pipeline


def name(pipeline: SourcePipeline, definition: str) -> str:
    return f"{definition}_{pipeline.source.name}"


def assert_equal(pipeline: SourcePipeline, database: Database, condition: str = "status <> 'archived'") -> None:
    """Tables, bucket rows and replayed logs equal SQL on the source."""
    view, by_customer, totals = (
        f"staging.stg_{pipeline.source.name}__orders",
        name(pipeline, "by_customer"),
        name(pipeline, "totals"),
    )
    key = str
    assert pipeline.rows(f"select {COLUMNS}, note from {view}") == sorted(
        database.execute(f"select {COLUMNS}, note from orders"), key=lambda r: tuple((v is not None, key(v)) for v in r)
    )
    assert pipeline.bucket(by_customer, COLUMNS) == sorted(
        database.execute(f"""select '{by_customer}["' || customer || '"]', {COLUMNS} from orders where {condition}"""),
        key=lambda r: tuple((v is not None, key(v)) for v in r),
    )
    assert pipeline.bucket(totals, "customer, total, orders") == sorted(
        database.execute(f"select '{totals}[]', customer, sum(total), count(*) from orders group by customer"),
        key=lambda r: tuple((v is not None, key(v)) for v in r),
    )
    for definition in (by_customer, totals):
        assert pipeline.replayed(definition) == pipeline.logged_rows(definition)


CHANGES = [
    "update orders set status = 'paid' where id = 1; update orders set status = 'sent' where id = 1",
    "insert into orders values (100, 1, 'new', 5, 'short'); delete from orders where id = 2",
    "insert into orders values (101, 1, 'new', 5, 'gone again'); delete from orders where id = 101",
    "delete from orders where id = 3; insert into orders values (3, 4, 'back', 9, 'other')",
    "update orders set id = 200 where id = 4",  # the note is not sent: unchanged TOAST under a new key
    (
        "update orders set id = -1 where id = 5; update orders set id = 5 where id = 6;"
        "update orders set id = 6 where id = -1"
    ),
    "update orders set customer = 9 where id = 7; update orders set status = 'archived' where id in (8, 9)",
    "update orders set status = 'new' where id = 8",
]


@pytest.mark.parametrize("at_once", [3, 1])
def test_every_run_equals_the_source(
    pipeline: SourcePipeline, database: Database, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Each run numbers its events and ops in slices, as a large run does."""
    monkeypatch.setattr(bucket_plan, "_ROWS_PER_OP_SLICE", 1)
    monkeypatch.setattr(impl, "SAMPLE", 1)
    monkeypatch.setattr(log_slices, "_SAMPLES_PER_SLICE", 2)
    pipeline.sync()
    assert_equal(pipeline, database)
    for first in range(0, len(CHANGES), at_once):
        for change in CHANGES[first : first + at_once]:
            database.execute(change)
        pipeline.sync()
        assert_equal(pipeline, database)
    order = "row_number() over (order by {})"
    by_seq, in_log = order.format("seq"), order.format("commit_lsn, change_lsn, commit_index, writer")
    ((misplaced, last_slice),) = pipeline.rows(
        f"select count_if(by_seq <> in_log), max(seq >> 31 & 63) from "
        f"(select seq, {by_seq} as by_seq, {in_log} as in_log from core.events where source = '{pipeline.source.name}')"
    )
    assert misplaced == 0
    assert last_slice > 0
    for log in (f"buckets.{name(pipeline, each)}__ops" for each in ("by_customer", "totals")):
        ((count, ids, highest),) = pipeline.rows(f"select count(*), count(distinct op_id), max(op_id) from {log}")
        assert count == ids < highest
        same = "bucket, object_type, object_id, checkpoint_id"
        ((late_removals,),) = pipeline.rows(
            f"select count(*) from {log} as put join {log} as removed using ({same})"
            " where put.op = 'PUT' and removed.op = 'REMOVE' and put.op_id < removed.op_id"
        )
        assert late_removals == 0


def test_a_change_of_no_selected_value_makes_no_op(pipeline: SourcePipeline, database: Database) -> None:
    view = f"stg_{pipeline.source.name}__orders"
    path = f"models/staging/{view}.sql"
    pipeline.write(path, (pipeline.folder / path).read_text().replace("from {{", ", columns as _columns\nfrom {{"))
    query = f"select _row_key, id, _columns from {{{{ rows('{view}') }}}}"
    texts = pipeline.definition("texts", query, bucket_by=[], object_id="id", evaluation="incremental")
    pipeline.sync()
    logs = [f"buckets.{definition}__ops" for definition in (texts, name(pipeline, "by_customer"))]
    ops = [pipeline.snapshot_ids(log) for log in logs]
    # The notes are not sent.
    database.execute("update orders set total = total where id < 20")
    database.execute("insert into orders values (101, 1, 'new', 5, 'gone again'); delete from orders where id = 101")
    pipeline.sync()
    assert [pipeline.snapshot_ids(log) for log in logs] == ops
    assert_equal(pipeline, database)


# Numeric keys, which prune files, and keys that only look like numbers.
NUMBERS = ("0", "7", "-7", "9223372036854775807", "-9223372036854775808")
TEXTS = ("07", "+7", "-0", " 7", "7 ", "7.0", "7e0", "", "a", "#2", "7#2", "9223372036854775808", '7"', "7\n", "\u0667")


def test_rows_are_found_by_keys_of_any_type(pipeline: SourcePipeline, database: Database) -> None:
    database.execute(
        "create table named (k text primary key, v int);"
        "create table pairs (k int, l text, v int, primary key (k, l));"
        "insert into pairs select i / 3, i, 0 from generate_series(1, 9) i;"
        "create table counted (k int); alter table counted replica identity full;"
        "insert into counted select i / 3 from generate_series(1, 9) i;"
        # Their keys are integers until the first changes.
        "create table grown (k text primary key, v int); insert into grown select i, 0 from generate_series(1, 9) i;"
        "create table copied (k int); alter table copied replica identity full; insert into copied values (1), (2), (3)"
    )
    for key in NUMBERS + TEXTS:
        database.execute("insert into named values (%s, 0)", [key])
    tables = {
        "named": {"k": "string", "v": "int"},
        "pairs": {"k": "int", "l": "string", "v": "int"},
        "counted": {"k": "int"},
        "grown": {"k": "string", "v": "int"},
        "copied": {"k": "int"},
    }
    for table, columns in tables.items():
        query = f"select _row_key, {', '.join(columns)} from {{{{ rows('{pipeline.view(table, columns)}') }}}}"
        pipeline.definition(table, query, bucket_by=[], object_id="k", evaluation="incremental")
    for table in ("counted", "copied"):
        path = pipeline.folder / f"models/staging/stg_{pipeline.source.name}__{table}.sql"
        copies = path.read_text().replace("row_key as", "if(copy = 1, row_key, row_key || '#' || copy) as")
        path.write_text(copies.replace("where", "lateral view explode(sequence(1, multiplicity)) as copy where"))

    def tables_with_integer_keys() -> set[str]:
        rows = pipeline.rows("select model from core.model_watermarks where has_integer_keys")
        return {table for table in tables for (model,) in rows if model == name(pipeline, table)}

    def assert_tables_equal() -> None:
        for table, columns in tables.items():
            full, selected = name(pipeline, table), ", ".join(columns)
            expected = sort_rows((f"{full}[]", *row) for row in database.execute(f"select {selected} from {table}"))
            assert pipeline.bucket(full, selected) == expected
            assert pipeline.replayed(full) == pipeline.logged_rows(full)

    pipeline.sync()
    assert_tables_equal()
    assert tables_with_integer_keys() == {"grown", "copied"}
    numbered = f"select k, cast(_key_number as string) from buckets.{name(pipeline, 'named')}"
    assert pipeline.rows(numbered) == sort_rows([*((n, n) for n in NUMBERS), *((text, None) for text in TEXTS)])
    for change in (
        (
            "update named set v = 1 where k not in ('7', '07', '7 '); delete from named where k in ('7', '07', '7 ');"
            "update pairs set v = 1 where k = 1; delete from pairs where l = '3'; update counted set k = 7 where k = 1;"
            "delete from counted where ctid = (select min(ctid) from counted where k = 2);"
            "update grown set v = 1 where k = '1'; update grown set k = 'a' where k = '2';"
            "insert into copied values (2), (2), (3)"
        ),
        (
            "insert into named values ('7', 2); update named set k = '8', v = 3 where k = '7#2';"
            "update named set v = 3 where k = ' 7'; insert into counted values (2), (2), (3);"
            "update grown set v = v + 1 where k in ('a', '3'); delete from copied where k = 2"
        ),
    ):
        database.execute(change)
        pipeline.sync()
        assert_tables_equal()
    database.execute("update named set v = 4 where k in ('0', '7', 'a'); delete from named where k in ('-7', '7.0')")
    pipeline.sync()
    assert_tables_equal()
    assert tables_with_integer_keys() == set()
    assert pipeline.rows(f"{numbered} where v = 4") == [("0", "0"), ("7", "7"), ("a", None)]


def test_buckets_swap_rows_and_rows_share_an_object(pipeline: SourcePipeline, database: Database) -> None:
    view = f"stg_{pipeline.source.name}__orders"
    query, by_customer = f"select _row_key, id, customer from {{{{ rows('{view}') }}}}", name(pipeline, "by_customer")
    # Rows with the same object id are distinguished by their keys.
    shared = pipeline.definition("shared", query, bucket_by=[], object_id="customer", evaluation="incremental")
    pipeline.sync()
    database.execute(
        "update orders set customer = 3 - customer where customer in (1, 2); delete from orders where id = 3"
    )
    done = pipeline.sync()
    assert done[by_customer].message == "inputs changed, PUT 16, REMOVE 17"
    assert pipeline.rows(f"select cast(object_id as int), id from buckets.{shared}") == sort_rows(
        database.execute("select customer, id from orders")
    )
    assert pipeline.replayed(shared) == pipeline.logged_rows(shared)
    assert_equal(pipeline, database)
    for bucket_by in ("status", "customer"):
        query = f"select _row_key, {COLUMNS} from {{{{ rows('{view}') }}}} where status <> 'archived'"
        settings = {"object_type": "order", "object_id": "id", "evaluation": "incremental"}
        pipeline.definition("by_customer", query, bucket_by=[bucket_by], **settings)
        assert pipeline.model()[by_customer].message == "definition changed, PUT 39, REMOVE 39"
    assert_equal(pipeline, database)


def test_one_run_over_all_changes_equals_the_source(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    for change in CHANGES:
        database.execute(change)
    database.execute(
        "begin; insert into orders values (300, 1, 'lost', 1, ''); truncate orders; "
        "insert into orders values (1, 1, 'only', 2, 'one'); commit"
    )
    pipeline.sync()
    assert_equal(pipeline, database)
    database.execute("insert into orders select i, 1, 'new', 1, 'n' from generate_series(10, 20) i")
    pipeline.sync()
    assert_equal(pipeline, database)


def test_rows_that_moved_between_chunks_keep_all_their_values(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed snapshot resumes later. Meanwhile rows have moved from an unread into a read chunk, and the log does
    not have their unchanged TOAST values.
    """
    database.execute(
        "create table big (id int primary key, filler text, note text);"
        "alter table big alter note set storage external, alter filler set storage plain;"
        "insert into big select i, repeat('f', 700), repeat(i || '-', 2000) from generate_series(1, 66) i"
    )
    database.execute("delete from big where id < 20")
    database.execute("vacuum big")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("big", {"id": "int", "filler": "string", "note": "string"})
    pipeline.definition(
        "all", f"select id from {{{{ ref('{view}') }}}}", bucket_by=[], object_id="id", unique_key=["id"]
    )
    monkeypatch.setattr("ingest.snapshot.snapshotter.KEYS_AT_ONCE", 2)
    small = chunk_settings(settings, 1, chunk_lease_seconds=1.0)
    jobs = PostgresJobs(lake, source, small)

    def die_after_two(chunks: Sequence[Chunk]) -> None:
        if chunks[0].chunk == 1:
            raise Killed

    with pytest.raises(Killed):
        jobs.snapshot(SnapshotHooks(after_commit=die_after_two))
    database.execute("update big set id = id + 1000 where id in (31, 41)")
    database.execute("update big set filler = repeat('g', 700) where id = 51")
    database.execute("update big set id = 2021 where id = 21")
    database.execute("update big set id = 3021 where id = 2021")
    moved = database.execute("select id from big where (ctid::text::point)[0] = 0 and id > 30")
    assert len(moved) >= 2
    requested_keys: list[str] = []

    def move_again(chunks: Sequence[Chunk]) -> None:
        keys = [key for chunk in chunks for key in chunk.row_keys or ()]
        if keys and not requested_keys:
            database.execute("update big set id = 5031 where id = 1031")
        assert len(keys) <= 2
        requested_keys.extend(keys)

    with jobs.streaming():
        jobs.snapshot(SnapshotHooks(after_claim=move_again))
    jobs.close()
    pipeline.sync()
    assert {f'["{key}"]' for (key,) in moved} | {'["5031"]'} <= set(requested_keys)
    rows = database.execute("select id, filler, note from big")
    assert pipeline.rows(f"select id, filler, note from staging.{view}") == sorted(rows, key=lambda row: str(row[0]))


@pytest.mark.parametrize("scope", ["definition", "source"])
def test_snapshot_hold_selects_the_outputs_delayed_by_a_new_snapshot(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    scope: str,
) -> None:
    source = new_source(snapshot_hold=scope)
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    for table in ("a", "b"):
        database.execute(f"create table {table} (id int primary key); insert into {table} values (1)")
        view = pipeline.view(table, {"id": "int"})
        pipeline.definition(
            table, f"select id from {{{{ ref('{view}') }}}}", bucket_by=[], object_id="id", unique_key=["id"]
        )
    pipeline.sync()
    assert lake.tables.queue_snapshots(source.name, "asked for", ["public.a"]) == ["public.a"]
    database.execute("insert into a values (2); insert into b values (2)")
    stream = PostgresJobs(lake, source, settings)
    stream.stream()
    pipeline.model()
    assert pipeline.bucket(name(pipeline, "a"), "id") == [(f"{name(pipeline, 'a')}[]", 1)]
    assert len(pipeline.bucket(name(pipeline, "b"), "id")) == (2 if scope == "definition" else 1)
    stream.close()
    pipeline.sync()
    for table in ("a", "b"):
        assert len(pipeline.bucket(name(pipeline, table), "id")) == 2


def test_runs_continue_after_old_iceberg_snapshots_expire(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    database.execute(CHANGES[0])
    pipeline.sync()
    tables = pipeline.lake.expire_snapshots(0, keep=1)
    assert {"core.row_state", f"buckets.{name(pipeline, 'by_customer')}__ops"} <= set(tables)
    assert pipeline.rows("select count(*) from core.row_state.snapshots") == [(1,)]
    database.execute(CHANGES[1])
    pipeline.sync()
    assert_equal(pipeline, database)


def test_the_unit_tests_of_the_models_pass(
    pipeline: SourcePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the package as a project of its own, but not in a project that it is installed into."""
    pipeline.sync()
    assert pipeline.project.manifest.unit_tests == {}
    monkeypatch.setenv("DBT_TARGET_PATH", str(tmp_path / "package"))
    outcomes = Project(folder=ROOT).invoke("test", "--select", "resource_type:unit_test")
    statuses = [outcome.status for outcome in outcomes if "-on-run-" not in outcome.name]
    assert statuses == ["pass"] * 4


def test_rows_that_cannot_be_distinguished_are_refused(pipeline: SourcePipeline) -> None:
    view = f"stg_{pipeline.source.name}__orders"
    query = f"select customer, status, count(*) as n from {{{{ ref('{view}') }}}} group by customer, status, id"
    pipeline.definition("doubled", query, bucket_by=[], object_id="customer", unique_key=["customer"])
    with pytest.raises(Failure, match=r"Two rows of the bucket doubled_\w+\[\] have the id \d and the key"):
        pipeline.sync()
    assert pipeline.rows(f"select count(*) from buckets.{name(pipeline, 'doubled')}") == [(0,)]


def add_lookup(pipeline: SourcePipeline, short: str, query: str, request: object) -> str:
    """Adds a lookup of by_customer's buckets; returns its full name."""
    full = pipeline.definition(short, query, parameters=request, bucket=name(pipeline, "by_customer"))
    path = f"models/buckets/{full}.sql"
    return pipeline.write(path, "{{ config(materialized='bucket_lookup') }}\n" + (pipeline.folder / path).read_text())


# Names in the queries: {rows}, {ref}: the view of orders by either macro; {bare}: a view of it without _checkpoint_id,
# {made}: a view with two rows for each, {own}: with its own _checkpoint_id, {young}: with a filter by today's date.
_MANY = ", ".join(f"id + {number} as more_{number}" for number in range(30))
INVALID_INCREMENTAL = {
    "select _row_key, id from {rows} union all select _row_key, id from {rows}": "reads 2 inputs by rows",
    "select _row_key, id from {ref}": "reads 0 inputs by rows",
    "select _row_key, id from {ref} -- {rows}": "reads 0 inputs by rows",
    "with unused as (select * from {rows}) select _row_key, id from {ref}": "reads another input in addition to rows",
    "select _row_key, id from {bare}": "the view of rows(...) has no _checkpoint_id",
    "select _row_key, max(id) as id from {rows} group by _row_key": "with Aggregate in the query",
    "select _row_key, id, row_number() over (order by id) as place from {rows}": "with Window in the query",
    "select a._row_key, a.id from {rows} a join {ref} b on a.customer = b.id": "with Join in the query",
    "select distinct _row_key, id from {rows}": "with Distinct in the query",
    "select _row_key, id from {rows} limit 3": "Limit in the query",
    "select _row_key, id, (select max(id) from {ref}) as most from {rows}": "with a subquery in the query",
    "select _row_key, id, current_timestamp() as seen from {rows}": "with current_timestamp in the query",
    "select _row_key, id from {rows} where date '2020-01-01' < date 'today'": "with 'today' in the query",
    'select _row_key, id from {rows} where date "2020-01-01" < date "today"': "with 'today' in the query",
    "select _row_key, id from {young}": "with 'today' in the query",
    "select _row_key, id, cast(' now' as timestamp) as seen from {rows}": "with 'now' in the query",
    "select _row_key, id from {rows} where date '2020-01-01' < 'TODAY'": "with 'TODAY' in the query",
    "select _row_key, id from {rows} where date '2020-01-01' < to_date('today')": "with 'today' in the query",
    "select _row_key, id, try_to_timestamp('Now UTC') as seen from {rows}": "with 'Now UTC' in the query",
    "select _row_key, id from {rows} where date '2020-01-01' between 'yesterday' and 'Today'": "with 'yesterday' in",
    "select _row_key, id from {rows} where extract(day from 'now') > 0": "with 'now' in the query",
    "select _row_key, id from {rows} where date_part('day', 'now') > 0": "with 'now' in the query",
    "select _row_key, id, decode(date '2020-01-01', 'today', 1, 2) as x from {rows}": "with 'today' in the query",
    "select _row_key, id from {rows} where 'now' - interval 1 day > '2020-01-01'": "with 'now' in the query",
    "select _row_key, id from {rows} where date '2020-01-01' < date r'today'": "of a query that can't be checked",
    "-- the customer's\nselect _row_key, id, 'x' as a, rand() as r, 'y' as b from {rows}": "with rand in the query",
    f"select _row_key, id, {_MANY}, current_timestamp() as seen from {{rows}}": "with current_timestamp in the query",
    f"select _row_key, {_MANY}, id, exists (select 1 from {{ref}}) as a from {{rows}}": "with a subquery in the query",
    "select concat(_row_key, '!') as _row_key, id from {rows}": "with a _row_key of its own",
    "select id as _row_key, id from {rows}": "with a _row_key of its own",
    "select _row_key, id from {made}": "with a _row_key of its own",
    "select _row_key, id from {own}": "with a _checkpoint_id of its own",
    "select id from {rows}": "names a column '_row_key' that the query does not select",
    "select _row_key, id, total as ID from {rows}": "selects two columns named 'ID'",
    "select _row_key, id from {rows} -- {notes}": "evaluation: 'incremental' depends on 2 tables",
}
# With `evaluation: full`: the query gives valid rows, but its inputs or its `meta` are invalid.
INVALID_FULL = {
    "select id, (select max(seq) from {events}) as seq from {ref}": "reads events directly",
    "select id from {of_raw}": "', which reads source.tidemark.raw.snapshot_chunks directly",
    "select cast(cast(id as string) as binary) as id from {ref}": "the column 'id', whose type binary is no text",
    "select map(id, id) as id from {ref}": "the column 'id', whose type map<bigint,bigint> is no text",
    "select array(id, customer) as id from {ref}": "the column 'id', whose type array<bigint> is no text",
    "select named_struct('a', id) as id from {ref}": "the column 'id', whose type struct<a:bigint> is no text",
    "select id, customer as _pos from {ref}": "selects a column named '_pos', which every bucket table has",
    "select id, named_struct('a-b', id) as s from {ref}": "selects 's' as struct<a-b:bigint>, which no table can have",
    "select id, array(named_struct('a', id, 'A', id)) as s from {ref}": "as array<struct<a:bigint,A:bigint>>, which no",
    "select id, array() as s from {ref}": "selects 's' as array<void>, which no table can have",
    "select id, null as s from {ref}": "selects 's' as void, which no table can have",
    "select id, make_dt_interval(1) as s from {ref}": "selects 's' as interval day to second, which no table can have",
}


# The parameters of a lookup, how it depends on its definition, and the reason of the error.
INVALID_LOOKUPS: list[tuple[object, str, str]] = [
    ("customer", "-- depends_on: {{{{ ref('{}') }}}}", "meta.parameters is missing or not a list"),
    (["user_id"], "-- depends_on: {{{{ ref('{}') }}}}", "does not select 'user_id'"),
    (["customer"], "", "does not depend on 'by_customer"),
    (["customer"], "with used as (select * from {{{{ ref('{}') }}}})", "reads 'by_customer"),
]


def test_invalid_definitions_are_refused_by_name(pipeline: SourcePipeline, database: Database) -> None:
    database.execute("create table notes (word text); insert into notes values ('a'), ('a'), ('b')")
    database.execute("alter table notes replica identity full")
    view, unkeyed = f"stg_{pipeline.source.name}__orders", pipeline.view("notes", {"word": "string"})
    copies = (pipeline.folder / f"models/staging/{unkeyed}.sql").read_text()
    copies = copies.replace("row_key as", "if(copy = 1, row_key, row_key || '#' || copy) as")
    copies = copies.replace("where", "lateral view explode(sequence(1, multiplicity)) as copy where")
    pipeline.write(f"models/staging/{unkeyed}.sql", copies)
    bare = pipeline.write(f"models/staging/bare_{view}.sql", f"select _row_key, id from {{{{ ref('{view}') }}}}")
    lines = f"from {{{{ ref('{view}') }}}} lateral view explode(array('1', '2')) as line"
    keys = "select concat(_row_key, '/', line) as _row_key, _checkpoint_id, id"
    view_with_two_rows = pipeline.write(f"models/staging/made_{view}.sql", f"{keys} {lines}")
    keys = "select _row_key, cast(0 as bigint) as _checkpoint_id, id"
    own = pipeline.write(f"models/staging/own_{view}.sql", f"{keys} from {{{{ ref('{view}') }}}}")
    past = f"from {{{{ ref('{view}') }}}} where date '2020-01-01' < date 'today'"
    young = pipeline.write(f"models/staging/young_{view}.sql", f"select _row_key, _checkpoint_id, id {past}")
    joined = f"from {{{{ ref('{view}') }}}} o left join {{{{ source('raw', 'snapshot_chunks') }}}} c on o.id = c.chunk"
    of_raw = pipeline.write(f"models/staging/raw_{view}.sql", f"select o.id {joined}")
    reads = {"rows": f"{{{{ rows('{view}') }}}}", "bare": f"{{{{ rows('{bare}') }}}}", "events": "{{ ref('events') }}"}
    reads |= {"ref": f"{{{{ ref('{view}') }}}}", "of_raw": f"{{{{ ref('{of_raw}') }}}}"}
    reads |= {"notes": f"{{{{ ref('{unkeyed}') }}}}", "made": f"{{{{ rows('{view_with_two_rows}') }}}}"}
    reads |= {"own": f"{{{{ rows('{own}') }}}}", "young": f"{{{{ rows('{young}') }}}}"}
    refusals: list[tuple[str, str, dict[str, object]]] = [
        (query, why, {"evaluation": "incremental"}) for query, why in INVALID_INCREMENTAL.items()
    ]
    refusals += [(query, why, {"unique_key": ["id"]}) for query, why in INVALID_FULL.items()]
    names = [
        pipeline.definition(f"refused_{number}", query.format(**reads), bucket_by=[], object_id="id", **meta)
        for number, (query, _, meta) in enumerate(refusals)
    ]
    by_customer = name(pipeline, "by_customer")
    for request, depends, why in INVALID_LOOKUPS:
        query = f"{depends.format(by_customer)}\nselect customer from {{{{ ref('{view}') }}}}"
        names.append(add_lookup(pipeline, f"refused_{len(names)}", query, request))
        refusals.append((query, why, {}))
    columns = "_row_key, replace(word, '\\nSort', '') as word, 'rand(1)' as said"
    query = f"-- it's #12\nselect {columns} from {{{{ rows('{unkeyed}') }}}}"
    words = pipeline.definition("words", query, bucket_by=[], object_id="word", evaluation="incremental")
    with pytest.raises(Failure) as failure:
        pipeline.sync()
    messages = {line.partition(" ")[0]: line for line in str(failure.value).split("; ")}
    for definition, (query, why, _) in zip(names, refusals, strict=True):
        assert why in messages.get(definition, ""), query
    assert pipeline.bucket(words, "word") == [(f"{words}[]", word) for word in "aab"]
    assert pipeline.rows(f"select count(*) from buckets.{by_customer}") == [(40,)]


def test_columns_with_another_storage_type_survive_an_edit(pipeline: SourcePipeline) -> None:
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    columns = "_row_key, id, status as `# of status`, status collate utf8_lcase as folded, cast(id as tinyint) as small"
    query = f"select {columns} from {{{{ rows('stg_{pipeline.source.name}__orders') }}}}"
    odd = pipeline.definition("odd", query, **options)
    pipeline.sync()

    def change(query: str) -> str:
        pipeline.definition("odd", query, **options)
        return pipeline.model("run", "--select", odd)[odd].message

    assert change(query + " where id > 1") == "definition changed, PUT 0, REMOVE 1"
    assert pipeline.bucket(odd, "`# of status`, folded, small")[0][1:] == ("new", "new", 10)
    assert change(query.replace("status as `# of status`,", "")) == "definition changed, PUT 40, REMOVE 0"
    assert "# of status" not in pipeline.spark.table(f"buckets.{odd}").columns


def test_a_changed_definition_writes_only_its_own_difference(pipeline: SourcePipeline, database: Database) -> None:
    database.execute("update orders set status = 'archived' where id in (1, 2, 3)")
    pipeline.sync()
    by_customer, totals = name(pipeline, "by_customer"), name(pipeline, "totals")
    others = [f"buckets.{totals}", f"buckets.{totals}__ops", "core.row_state", "core.events", "core.checkpoints"]
    before = pipeline.snapshot_ids(*others)
    view = f"stg_{pipeline.source.name}__orders"
    settings = {"bucket_by": ["customer"], "object_type": "order", "object_id": "id", "evaluation": "incremental"}

    def change(query: str) -> str:
        pipeline.definition("by_customer", query, **settings)
        done = pipeline.model()[by_customer].message
        assert pipeline.replayed(by_customer) == pipeline.logged_rows(by_customer)
        return done

    # White space and comments are no change.
    same = f"select  _row_key,{COLUMNS} -- all\nfrom {{{{ rows('{view}') }}}} where status<>'archived'"
    assert change(same) == "unchanged"
    wider = f"select _row_key, {COLUMNS} from {{{{ rows('{view}') }}}}"
    assert change(wider) == "definition changed, PUT 3, REMOVE 0"
    narrower = wider + " where id > 10"
    assert change(narrower) == "definition changed, PUT 0, REMOVE 10"
    assert change(wider) == "definition changed, PUT 10, REMOVE 0"
    other_case = wider.replace("status", "status as Status")
    assert change(other_case) == "definition changed, PUT 40, REMOVE 0"
    assert "Status" in pipeline.spark.table(f"buckets.{by_customer}").columns
    renamed = wider.replace("status", "status as state")
    assert change(renamed) == "definition changed, PUT 40, REMOVE 0"
    assert "status" not in pipeline.spark.table(f"buckets.{by_customer}").columns
    assert pipeline.bucket(by_customer, "id, state")[0][2] is not None
    retyped = wider.replace("total", "cast(total as string) as total")
    assert change(retyped) == "definition changed, PUT 40, REMOVE 0"
    assert change(wider) == "definition changed, PUT 40, REMOVE 0"
    # A wider type is no difference, and a raw string ends at its visible end.
    broader = wider.replace("total", "cast(total as decimal(20, 2)) as total")
    assert change(broader) == "definition changed, PUT 0, REMOVE 0"
    assert dict(pipeline.spark.table(f"buckets.{by_customer}").dtypes)["total"] == "decimal(20,2)"
    raw = broader + r" where status <> r'\' and status <> 'a  b -- ' and status <> '%s'"
    assert change(raw % "x") == "definition changed, PUT 0, REMOVE 0"
    assert change(raw % "new") == "definition changed, PUT 0, REMOVE 37"
    assert change(wider) == "definition changed, PUT 40, REMOVE 0"
    assert pipeline.snapshot_ids(*others) == before
    assert_equal(pipeline, database, "true")


def test_op_ids_continue_after_a_full_refresh_without_changes(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer = name(pipeline, "by_customer")
    log = f"select * from buckets.{by_customer}__ops"
    before = pipeline.rows(log)
    pipeline.model("run", "--full-refresh", "--select", by_customer)
    assert pipeline.rows(log) == before
    with pytest.raises(Failure, match="with --empty or --sample the rows left out would be taken for deleted"):
        pipeline.model("run", "--empty", "--full-refresh", "--select", by_customer)
    database.execute("delete from orders where id = 1")
    pipeline.sync()
    assert len(pipeline.rows(log)) == len(before) + 1
    assert_equal(pipeline, database)


STATEMENTS: dict[str, Callable[[str], bool]] = {
    "before the events": lambda sql: "insert into core.events" in sql,
    "between the statements of row_state": lambda sql: "merge into core.row_state" in sql,
    "between rows and op log": lambda sql: "__ops" in sql and "insert into" in sql,
    "before the manifest": lambda sql: "insert into core.releases" in sql,
    "between manifest and its publication": lambda sql: "fast_forward('lake.core.releases'" in sql,
    "between manifest and tables": lambda sql: "fast_forward('lake.core.events'" in sql,
    "between tables": lambda sql: "fast_forward('lake.buckets." in sql,
    "before the watermarks": lambda sql: "insert overwrite core.model_watermarks" in sql,
}


@pytest.mark.parametrize("place", STATEMENTS)
def test_the_next_run_repairs_a_run_killed_at_any_statement(
    pipeline: SourcePipeline, database: Database, place: str
) -> None:
    pipeline.sync()
    database.execute(";".join(CHANGES))
    pipeline.ingest()
    view = f"staging.stg_{pipeline.source.name}__orders"
    before = pipeline.rows(f"select {COLUMNS} from {view}")
    with pytest.raises((Failure, StatementKilled)), kill_at_statement(STATEMENTS[place]):
        pipeline.model()
    # Readers see all of the run's rows of a table, or none.
    after = pipeline.rows(f"select {COLUMNS} from {view}")
    assert after == before or "fast" in place or place in ("between tables", "before the watermarks")
    pipeline.model()
    assert_equal(pipeline, database)


def test_a_new_definition_killed_half_created_can_be_edited(pipeline: SourcePipeline, database: Database) -> None:
    by_customer = name(pipeline, "by_customer")
    pipeline.ingest()
    path = f"models/buckets/{by_customer}.sql"
    definition = (pipeline.folder / path).read_text()
    pipeline.write(path, definition.replace(" from", ", total + 1 as more from"))
    with pytest.raises(Failure), kill_at_statement(lambda sql: f"create table buckets.{by_customer}__ops" in sql):
        pipeline.model()
    pipeline.write(path, definition)
    assert pipeline.model()[by_customer].message == "new, PUT 40, REMOVE 0"
    assert "more" not in pipeline.spark.table(f"buckets.{by_customer}").columns
    assert_equal(pipeline, database)


def test_a_failing_data_test_keeps_its_definition_unpublished(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer, totals = name(pipeline, "by_customer"), name(pipeline, "totals")
    before = pipeline.rows(f"select * from buckets.{by_customer}")
    # The test also reads the view but is no test of it: `totals`, which reads the same view, is published.
    pipeline.write(
        f"tests/data_tests/no_refunds_{pipeline.source.name}.sql",
        f"select * from {{{{ ref('{by_customer}') }}}} where total < 0 "
        f"and id in (select id from {{{{ ref('stg_{pipeline.source.name}__orders') }}}})",
    )
    database.execute("update orders set total = -1 where id = 1")
    pipeline.ingest()
    with pytest.raises(Failure, match="no_refunds"):
        pipeline.model()
    assert pipeline.rows(f"select * from buckets.{by_customer}") == before
    assert pipeline.bucket(totals, "customer, total") == sorted(
        database.execute(f"select '{totals}[]', customer, sum(total) from orders group by customer"),
        key=lambda row: str(row[1]),
    )
    database.execute("update orders set total = 1 where id = 1")
    pipeline.sync()
    assert_equal(pipeline, database)


def test_values_that_a_view_cannot_cast_fail_only_its_definitions(pipeline: SourcePipeline, database: Database) -> None:
    by_customer, totals = name(pipeline, "by_customer"), name(pipeline, "totals")
    view = f"stg_{pipeline.source.name}__orders"
    query, options = f"select _row_key, id from {{{{ rows('{view}') }}}}", {"bucket_by": [], "object_id": "id"}
    ids = pipeline.definition("ids", query, evaluation="incremental", **options)
    pipeline.sync()
    before = pipeline.rows(f"select * from buckets.{by_customer}")
    database.execute("alter table orders alter customer type bigint")
    database.execute("update orders set customer = 3000000000 where id < 3; delete from orders where id = 7")
    pipeline.ingest()
    with pytest.raises(Failure, match=f"(?s){by_customer}.*3000000000.*INT") as failed:
        pipeline.model()
    assert totals in str(failed.value)
    assert pipeline.rows(f"select * from buckets.{by_customer}") == before
    # A definition that does not read the column continues.
    assert pipeline.bucket(ids, "id") == sort_rows(database.execute(f"select '{ids}[]', id from orders"))
    pipeline.view("orders", {**ORDERS, "customer": "bigint", "note": "string"})
    pipeline.model()
    assert_equal(pipeline, database)


def test_a_column_whose_new_type_cannot_be_evaluated_is_unchanged(pipeline: SourcePipeline) -> None:
    pipeline.sync()
    by_customer = name(pipeline, "by_customer")
    path = f"models/buckets/{by_customer}.sql"
    before, text = pipeline.rows(f"select * from buckets.{by_customer}"), (pipeline.folder / path).read_text()
    pipeline.write(path, text.replace(" status,", " cast('x' || status as int) as status,"))
    with pytest.raises(Failure, match="xnew"):
        pipeline.model()
    assert pipeline.rows(f"select * from buckets.{by_customer}") == before
    pipeline.write(path, text)
    assert pipeline.model()[by_customer].message == "unchanged"


def test_a_rename_killed_half_way_and_reverted_is_undone(pipeline: SourcePipeline, database: Database) -> None:
    def define(column: str) -> str:
        query = f"select _row_key, id, status as {column} from {{{{ rows('stg_{pipeline.source.name}__orders') }}}}"
        return pipeline.definition("cased", query, bucket_by=[], object_id="id", evaluation="incremental")

    table = f"buckets.{define('Status')}"
    pipeline.sync()
    define("STATUS")
    with pytest.raises(Failure), kill_at_statement(lambda sql: "rename column" in sql and "to `STATUS`" in sql):
        pipeline.model()
    assert "STATUS__renamed" in pipeline.spark.table(table).columns
    define("Status")
    database.execute("update orders set status = 'sent' where id = 1")
    pipeline.sync()
    assert "Status" in pipeline.spark.table(table).columns
    assert pipeline.rows(f"select status from {table} where id = 1") == [("sent",)]


def copy_pipeline(pipeline: SourcePipeline) -> SourcePipeline:
    """The same project in another folder, as another process has it."""
    late = SourcePipeline(pipeline.lake, pipeline.source, pipeline.settings.settings, pipeline.folder / "late")
    for path in ("models/staging", "models/buckets"):
        for file in (pipeline.folder / path).iterdir():
            late.write(f"{path}/{file.name}", file.read_text())
    return late


def test_a_run_overtaken_by_another_one_publishes_nothing(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    database.execute("delete from orders where id < 5")
    pipeline.ingest()
    with (
        pytest.raises(ConcurrentPublishError),
        run_before_statement("insert into core.releases", copy_pipeline(pipeline).model),
    ):
        pipeline.model()
    assert_equal(pipeline, database)


def test_a_table_rewritten_during_a_run_does_not_block_later_runs(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer = name(pipeline, "by_customer")

    def rewrite() -> None:
        options = "options => map('rewrite-all', 'true')"
        pipeline.spark.sql(f"call system.rewrite_data_files(table => 'buckets.{by_customer}', {options})")

    publications = pipeline.rows("select count(*) from core.releases")
    database.execute("delete from orders where id < 5")
    pipeline.ingest()
    refused = pytest.raises(ConcurrentPublishError, match=f"{by_customer}.*: another process changed or dropped them")
    with refused, run_before_statement(f"merge into buckets.{by_customer} ", rewrite):
        pipeline.model()
    assert pipeline.rows("select count(*) from core.releases") == publications
    pipeline.model()
    assert_equal(pipeline, database)
    # Right after its own commit.
    database.execute("update orders set total = 5 where id < 9")
    pipeline.ingest()
    with pytest.raises(ConcurrentPublishError), run_before_statement("insert into core.releases", rewrite):
        pipeline.model()
    with pytest.raises(Failure, match="can't be finished") as failure:
        pipeline.model()
    assert not isinstance(failure.value, ConcurrentPublishError)
    (call,) = re.findall(r"call system\.set_current_snapshot\(.*?\)", str(failure.value))
    pipeline.spark.sql(call)
    database.execute("delete from orders where id = 5")
    pipeline.sync()
    assert_equal(pipeline, database)


def test_a_definition_pruned_during_a_run_is_rebuilt_completely(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer = name(pipeline, "by_customer")
    last_op = pipeline.rows(f"select max(op_id) from buckets.{by_customer}__ops")[0][0]
    late = copy_pipeline(pipeline)
    late.remove(f"models/buckets/{by_customer}.sql")

    def steps_to_delete() -> list[definition_plan.PlannedChange]:
        steps = definition_plan.make_plan(pipeline.spark, folder=late.folder)
        return [step for step in steps if step.state == "deleted" and step.definition == by_customer]

    def prune() -> None:
        with pytest.raises(Failure), kill_at_statement(lambda sql: "drop table" in sql and "__ops" in sql):
            definition_plan.prune_definitions(late.spark, folder=late.folder)
        assert definition_plan.prune_definitions(late.spark, folder=late.folder) == [by_customer]
        assert steps_to_delete() == []

    database.execute("delete from orders where id < 5")
    pipeline.ingest()
    with pytest.raises(ConcurrentPublishError), run_before_statement("fast_forward('lake.core.releases'", prune):
        pipeline.model()
    assert pipeline.model()[by_customer].message == "new, PUT 36, REMOVE 0"
    assert pipeline.rows(f"select min(op_id) from buckets.{by_customer}__ops") == [(last_op + 1,)]
    with pytest.raises(Failure, match=f"op {last_op} is not in the log.*was rebuilt. Discard your copy"):
        next(op_log.read_ops(pipeline.spark, by_customer, f'{by_customer}["7"]', last_op))
    assert_equal(pipeline, database)


def test_a_definition_can_be_pruned_while_a_run_publishes(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer = name(pipeline, "by_customer")
    pipeline.remove(f"models/buckets/{by_customer}.sql")
    steps = [
        step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder) if step.state == "deleted"
    ]
    assert [step.definition for step in steps] == [by_customer]

    def write_watermarks() -> None:
        pipeline.spark.sql("insert overwrite core.model_watermarks select * from core.model_watermarks")

    with run_during_statement("delete from core.model_watermarks", write_watermarks) as errors:
        assert definition_plan.prune_definitions(pipeline.spark, folder=pipeline.folder) == [by_customer]
    assert "missing data files" in " ".join(errors)
    assert pipeline.rows(f"select * from core.model_watermarks where model = '{by_customer}'") == []
    assert [
        step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder) if step.state == "deleted"
    ] == []


def test_a_run_whose_staged_definition_is_pruned_can_be_repeated(
    pipeline: SourcePipeline, database: Database, tmp_path: Path
) -> None:
    pipeline.sync()
    by_customer = name(pipeline, "by_customer")
    without = tmp_path / "without"
    shutil.copytree(pipeline.folder, without, symlinks=True)
    (without / f"models/buckets/{by_customer}.sql").unlink()

    def prune() -> None:
        assert definition_plan.prune_definitions(pipeline.spark, folder=without) == [by_customer]

    database.execute("update orders set total = 0 where id < 20")
    pipeline.ingest()
    interrupted = run_before_statement(f"insert into buckets.{by_customer}__ops", prune)
    with pytest.raises(ConcurrentPublishError), interrupted:
        pipeline.model()
    pipeline.model()
    assert_equal(pipeline, database)


@pytest.mark.parametrize("schema", ["buckets", "core"])
def test_tables_that_dbt_failed_to_list_are_not_created_again(
    pipeline: SourcePipeline, database: Database, schema: str
) -> None:
    pipeline.sync()
    database.execute("update orders set total = 0 where id < 20")
    pipeline.ingest()

    def drop_one_meanwhile(sql: str) -> None:
        if f"show table extended in {schema}" in sql:
            try:
                pipeline.spark.table(f"{schema}.dropped_meanwhile").collect()
            except AnalysisException as error:  # as dbt's cursor reports it: dbt takes this for a schema without tables
                raise DbtRuntimeError(str(error)) from error

    with (
        pytest.raises(ConcurrentPublishError, match=f"tables of {schema} changed while dbt"),
        intercept_statements(drop_one_meanwhile),
    ):
        pipeline.model()
    pipeline.model()
    assert_equal(pipeline, database)


def test_manually_dropped_tables_are_created_again(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer, totals = name(pipeline, "by_customer"), name(pipeline, "totals")
    last_op = pipeline.rows(f"select max(op_id) from buckets.{by_customer}__ops")[0][0]
    pipeline.spark.sql(f"drop table buckets.{by_customer}")
    # The run is killed before the new tables are published: the next run does not take them for the old ones.
    with pytest.raises(Failure), kill_at_statement(lambda sql: f"insert into buckets.{by_customer}__ops" in sql):
        pipeline.model()
    assert pipeline.model()[by_customer].message == "definition changed, PUT 40, REMOVE 0"
    assert pipeline.rows(f"select min(op_id) from buckets.{by_customer}__ops") == [(last_op + 1,)]
    assert_equal(pipeline, database)
    database.execute("update orders set total = 0 where id < 20")
    pipeline.ingest()
    with pytest.raises(Failure), kill_at_statement(lambda sql: "fast_forward('lake.buckets." in sql):
        pipeline.model()
    pipeline.spark.sql(f"drop table buckets.{totals}__ops")
    pipeline.model()
    assert_equal(pipeline, database)


def test_a_run_overtaken_by_a_column_type_change_publishes_nothing(
    pipeline: SourcePipeline, database: Database
) -> None:
    pipeline.sync()
    late = copy_pipeline(pipeline)
    as_text = {"by_customer": ("total from", "cast(total as string) as total from")}
    as_text["totals"] = ("sum(total)", "cast(sum(total) as string)")
    for definition, texts in as_text.items():
        path = f"models/buckets/{name(pipeline, definition)}.sql"
        late.write(path, (late.folder / path).read_text().replace(*texts))

    def begin() -> None:
        with pytest.raises(Failure), kill_at_statement(lambda sql: "insert into buckets." in sql):
            late.model()

    database.execute("delete from orders where id < 5")
    pipeline.ingest()
    with pytest.raises(ConcurrentPublishError), run_before_statement("insert into core.releases", begin):
        pipeline.model()
    late.model()
    for definition in as_text:
        full = name(pipeline, definition)
        assert dict(pipeline.spark.table(f"buckets.{full}").dtypes)["total"] == "string"
        assert pipeline.replayed(full) == pipeline.logged_rows(full)
    pipeline.model()
    assert_equal(pipeline, database)


def test_a_cast_that_changes_many_definitions_takes_one_run(pipeline: SourcePipeline, database: Database) -> None:
    """The run invalidates the published tables of all of them, one after the other."""
    view = f"stg_{pipeline.source.name}__orders"
    many = [
        pipeline.definition(
            f"totals_{number}",
            f"select customer, sum(total) as total from {{{{ ref('{view}') }}}} group by customer",
            bucket_by=[],
            object_id="customer",
            unique_key=["customer"],
        )
        for number in range(3)
    ]
    pipeline.sync()
    pipeline.view("orders", {**ORDERS, "note": "string", "total": "decimal(20, 3)"})
    threads: list[int] = []

    def on_statement(sql: str) -> None:
        if "core.releases" in sql and ("create branch" in sql or "fast_forward" in sql):
            threads.append(threading.get_ident())

    with intercept_statements(on_statement):
        outcomes = pipeline.model()
    assert threads[::2] == threads[1::2]
    assert len(set(threads)) > 1
    for definition in [*many, name(pipeline, "by_customer"), name(pipeline, "totals")]:
        assert outcomes[definition].message.startswith("definition changed")
        assert pipeline.replayed(definition) == pipeline.logged_rows(definition)
    assert_equal(pipeline, database)


def test_two_invalidations_of_a_run_are_both_stored(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    pipeline.view("orders", {**ORDERS, "note": "string", "total": "decimal(20, 3)"})
    project, other = pipeline.project, copy_pipeline(pipeline).project
    tears: list[str] = []
    inserts: list[str] = []
    both = threading.Event()

    def on_statement(sql: str) -> None:
        if "insert into core.releases" in sql:
            tears.append(sql)
            if len(tears) == 2:  # another run begins, and finishes the interrupted release
                with isolated_dbt():
                    other.run_operation("start_run")
        if "insert into buckets." in sql:
            inserts.append(sql)
            if len(inserts) == 2:
                both.set()
            both.wait(120)
        if both.is_set():
            raise StatementKilled(sql)

    with pytest.raises((Failure, StatementKilled)), intercept_statements(on_statement):
        project.invoke("build")
    done = pipeline.model()
    for definition, rows in (("by_customer", 40), ("totals", 5)):
        assert done[name(pipeline, definition)].message == f"definition changed, PUT {rows}, REMOVE 0"
    assert_equal(pipeline, database)


def test_random_changes_in_several_runs_equal_the_source(pipeline: SourcePipeline, database: Database) -> None:
    rng = random.Random(7)
    pipeline.sync()
    with database.connect(autocommit=False) as connection:
        for _ in range(4):
            for _ in range(40):
                for _ in range(rng.randint(1, 4)):
                    connection.execute("savepoint s")
                    try:
                        connection.execute(_random_change(rng))
                    except Exception:  # noqa: BLE001  # a duplicate key
                        connection.execute("rollback to s")
                (connection.rollback if rng.random() < 0.1 else connection.commit)()
            pipeline.sync()
            assert_equal(pipeline, database)


def _random_change(rng: random.Random) -> str:
    a, b = rng.randint(1, 60), rng.randint(1, 60)
    return rng.choice(
        [
            f"insert into orders values ({a}, {b % 6}, 'new', {b}, repeat('{b}', {rng.choice([1, 2500])}))",
            f"update orders set status = '{rng.choice(['paid', 'archived', 'new'])}' where id = {a}",
            f"update orders set customer = {b % 6}, total = {b} where id between {a} and {a + 5}",
            f"update orders set note = repeat('y', {rng.choice([1, 2500])}) where id = {a}",
            f"update orders set id = {b} where id = {a}",
            f"delete from orders where id = {a}",
        ]
    )


def test_a_lookup_returns_the_buckets_granted_to_a_request(pipeline: SourcePipeline, database: Database) -> None:
    database.execute(
        "create table members (user_id int, customer int, primary key (user_id, customer));"
        "insert into members values (7, 1), (7, 2), (8, 2)"
    )
    members = pipeline.view("members", {"user_id": "int", "customer": "int"})
    by_customer = name(pipeline, "by_customer")
    query = f"select user_id, customer from {{{{ ref('{members}') }}}} where customer > 0"
    lookup = add_lookup(pipeline, "seen", f"-- depends_on: {{{{ ref('{by_customer}') }}}}\n{query}", ["user_id"])
    file = pipeline.folder / f"models/buckets/{lookup}.sql"

    def granted_buckets(**request: str) -> list[str]:
        return [grant.bucket for grant in find_grants(pipeline.spark, request, folder=pipeline.folder)]

    pipeline.sync()
    assert granted_buckets(user_id="7") == [f'{by_customer}["1"]', f'{by_customer}["2"]']
    assert set(granted_buckets(user_id="7")) <= {
        bucket for (bucket,) in pipeline.rows(f"select bucket from buckets.{by_customer}")
    }
    database.execute("delete from members where customer = 1; insert into members values (8, 3)")
    pipeline.sync()
    assert granted_buckets(user_id="7") == [f'{by_customer}["2"]']
    assert granted_buckets(user_id="8") == [f'{by_customer}["2"]', f'{by_customer}["3"]']
    assert granted_buckets(user_id="9") == []
    assert pipeline.replayed(lookup) == pipeline.logged_rows(lookup)
    text = file.read_text()
    file.write_text(text.replace("user_id", "customer").replace("select customer, customer", "select customer"))
    with pytest.raises(Failure, match=r"the published version takes user_id, the project's customer"):
        granted_buckets(customer="7")
    file.write_text(text)
    with pytest.raises(UsageError, match="no lookup takes role"):
        granted_buckets(user_id="7", role="admin")
    pipeline.remove(f"models/buckets/{lookup}.sql")
    steps = [
        step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder) if step.definition == lookup
    ]
    assert [step.state for step in steps] == ["deleted"]
    assert definition_plan.prune_definitions(pipeline.spark, folder=pipeline.folder) == [lookup]
    assert not pipeline.spark.catalog.tableExists(f"buckets.{lookup}__ops")
    assert lookup not in {step.definition for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)}
    pipeline.sync()
    pipeline.write(f"models/buckets/{lookup}.sql", "{{ config(materialized='bucket_lookup') }} select 1 as user_id")
    with pytest.raises(UsageError, match="meta.parameters is missing"):
        granted_buckets(user_id="7")


def test_a_lookup_behind_its_definition_grants_no_buckets(pipeline: SourcePipeline, database: Database) -> None:
    database.execute(
        "create table members (user_id int primary key, customer int, status text);"
        "insert into members values (7, 1, 'new')"
    )
    members = pipeline.view("members", {"user_id": "int", "customer": "int", "status": "string"})
    by_customer = name(pipeline, "by_customer")
    query = f"select user_id, customer, status from {{{{ ref('{members}') }}}}"
    add_lookup(pipeline, "seen", f"-- depends_on: {{{{ ref('{by_customer}') }}}}\n{query}", ["user_id"])

    def granted_buckets() -> list[str]:
        return [grant.bucket for grant in find_grants(pipeline.spark, {"user_id": "7"}, folder=pipeline.folder)]

    pipeline.sync()
    assert granted_buckets() == [f'{by_customer}["1"]']
    path = f"models/buckets/{by_customer}.sql"
    pipeline.write(path, (pipeline.folder / path).read_text().replace("['customer']", "['status']"))
    pipeline.model("run", "--select", by_customer)
    with pytest.raises(Failure, match=f"names buckets of {by_customer} by columns that have changed"):
        granted_buckets()
    pipeline.model()
    assert granted_buckets() == [f'{by_customer}["new"]']


def test_a_definition_can_become_an_incremental_model(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    totals = name(pipeline, "totals")
    path = f"models/buckets/{totals}.sql"
    definition = (pipeline.folder / path).read_text()
    pipeline.write(path, "{{ config(materialized='incremental', meta={}) }} select 1 as id")
    for number in (1, 2):
        pipeline.model()
        assert pipeline.rows(f"select * from buckets.{totals}") == [(1,)] * number
    pipeline.write(path, definition)
    pipeline.model()
    assert_equal(pipeline, database)


def test_an_incremental_model_over_a_bucket_keeps_its_rows(pipeline: SourcePipeline, database: Database) -> None:
    """Although the model has all columns of a bucket table."""
    history = pipeline.write(
        f"models/buckets/history_{pipeline.source.name}.sql",
        "{{ config(materialized='incremental', incremental_strategy='append', meta={}) }}\n"
        f"select * from {{{{ ref('{name(pipeline, 'by_customer')}') }}}}\n"
        "{% if is_incremental() %} where _op_id > (select max(_op_id) from {{ this }}) {% endif %}",
    )
    pipeline.sync()
    assert pipeline.rows(f"select count(*) from buckets.{history}") == [(40,)]
    database.execute("update orders set total = 0 where id = 1; delete from orders where id = 2")
    pipeline.sync()
    assert pipeline.rows(f"select count(*) from buckets.{history}") == [(41,)]


def test_a_column_of_a_reverted_edit_is_dropped(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer = name(pipeline, "by_customer")
    before = pipeline.spark.table(f"buckets.{by_customer}").columns
    path, test = f"models/buckets/{by_customer}.sql", f"tests/data_tests/none_{pipeline.source.name}.sql"
    definition = (pipeline.folder / path).read_text()
    pipeline.write(path, definition.replace(" from", ", total + 1 as more from"))
    pipeline.write(test, f"select * from {{{{ ref('{by_customer}') }}}}")
    with pytest.raises(Failure):
        pipeline.model()
    pipeline.remove(test)
    pipeline.write(path, definition)
    assert pipeline.model()[by_customer].message == "unchanged"
    assert "more" in pipeline.spark.table(f"buckets.{by_customer}").columns
    database.execute("update orders set total = 0 where id = 1")
    pipeline.sync()
    assert pipeline.spark.table(f"buckets.{by_customer}").columns == before
    assert_equal(pipeline, database)


def test_a_definition_removed_before_its_release_can_be_pruned(pipeline: SourcePipeline) -> None:
    view = f"stg_{pipeline.source.name}__orders"
    query = f"select id, if(id > 0, raise_error('no such'), '') as v from {{{{ ref('{view}') }}}}"
    early = pipeline.definition("early", query, bucket_by=[], object_id="id", unique_key=["id"])
    with pytest.raises(Failure, match="no such"):
        pipeline.sync()
    pipeline.remove(f"models/buckets/{early}.sql")
    published = pipeline.rows("select max(release_id) from core.releases")
    (step,) = [
        step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder) if step.definition == early
    ]
    assert (step.state, step.reason) == (
        "deleted",
        "its model no longer exists; its tables stay until `tidemark prune`",
    )
    assert definition_plan.prune_definitions(pipeline.spark, folder=pipeline.folder) == [early]
    assert early not in {step.definition for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)}
    assert not pipeline.rows(f"show tables in buckets like '{early}*'")
    # A run that publishes it at the same time is refused.
    assert pipeline.rows("select max(release_id) from core.releases") > published
    assert pipeline.model()[name(pipeline, "by_customer")].message == "unchanged"


def test_a_table_that_now_belongs_to_another_model_is_not_pruned(pipeline: SourcePipeline) -> None:
    pipeline.sync()
    totals = name(pipeline, "totals")
    pipeline.write(f"models/buckets/{totals}.sql", "{{ config(materialized='table') }} select 1 as id")
    steps = [
        step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder) if step.definition == totals
    ]
    assert [step.reason for step in steps] == [
        "its model is no longer a definition; its tables stay until `tidemark prune`"
    ]
    pipeline.spark.sql(f"drop table buckets.{totals}")
    other = name(pipeline, "by_customer")
    pipeline.spark.sql(f"create table buckets.{totals} using iceberg as select * from buckets.{other}")
    assert definition_plan.prune_definitions(pipeline.spark, folder=pipeline.folder) == [totals]
    assert pipeline.spark.catalog.tableExists(f"buckets.{totals}")
    assert not pipeline.spark.catalog.tableExists(f"buckets.{totals}__ops")


def test_a_definition_that_replaces_another_kind_of_model_is_created(
    pipeline: SourcePipeline, database: Database
) -> None:
    pipeline.sync()
    totals = name(pipeline, "totals")
    path = f"models/buckets/{totals}.sql"
    definition = (pipeline.folder / path).read_text()
    late = copy_pipeline(pipeline)

    def write_other_kind(kind: str, query: str = "select 1 as id union all select 2 as id") -> None:
        late.write(path, f"{{{{ config(materialized='{kind}', meta={{}}) }}}}\n{query}")
        late.model()

    def restore_and_check(total: int) -> None:
        """The definition, after more changes of the source."""
        (last_op,) = pipeline.rows(f"select max(op_id) from buckets.{totals}__ops")[0]
        database.execute(f"update orders set total = {total} where id < 5")
        pipeline.sync()
        assert_equal(pipeline, database)
        assert pipeline.rows(f"select max(op_id) from buckets.{totals}__ops")[0][0] > last_op

    for number, kind in enumerate(("table", "view", "table")):
        log = pipeline.rows(f"select * from buckets.{totals}__ops")
        write_other_kind(kind)
        write_other_kind(kind)
        assert pipeline.rows(f"select * from buckets.{totals}") == [(1,), (2,)]
        assert pipeline.rows(f"select * from buckets.{totals}__ops") == log
        restore_and_check(number)
    # A table with all columns of a bucket.
    write_other_kind("table", f"select * from {{{{ ref('{name(pipeline, 'by_customer')}') }}}}")
    write_other_kind("table", f"select * from {{{{ ref('{name(pipeline, 'by_customer')}') }}}}")
    restore_and_check(9)
    # A model of another kind that could not be built: Spark has dropped the table that it replaces.
    with pytest.raises(Failure, match="no such"):
        write_other_kind("table", "select cast(raise_error('no such') as int) as id")
    restore_and_check(10)
    # A run that was in progress.
    database.execute("update orders set total = 11 where id < 5")
    pipeline.ingest()
    with (
        pytest.raises(ConcurrentPublishError),
        run_before_statement("insert into core.releases", lambda: write_other_kind("table")),
    ):
        pipeline.model()
    restore_and_check(12)
    # Pruned; never published.
    write_other_kind("table")
    (last_op,) = pipeline.rows(f"select max(op_id) from buckets.{totals}__ops")[0]
    assert definition_plan.prune_definitions(late.spark, folder=late.folder) == [totals]
    late.write(path, definition)
    with pytest.raises(Failure), kill_at_statement(lambda sql: f"insert into buckets.{totals}" in sql):
        late.model()
    write_other_kind("table")
    assert pipeline.rows(f"select * from buckets.{totals}") == [(1,), (2,)]
    pipeline.sync()
    assert_equal(pipeline, database)
    assert pipeline.rows(f"select min(op_id) from buckets.{totals}__ops") == [(last_op + 1,)]
